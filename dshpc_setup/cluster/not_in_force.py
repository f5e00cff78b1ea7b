"""What somebody has changed in a project folder and nobody has applied: a sentence for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup.apply.apply import read_text
from dshpc_setup.cluster import own_files, refused
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import ownership
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.plan import wrong_settings
from dshpc_setup.project.folder import SETTINGS, Project
from dshpc_setup.render.configuration import CONFIG_FILES
from dshpc_setup.settings import WrongSetting, applied
from dshpc_setup.settings.overruled import Overruled


def files(project: Project, now: ClusterStatus) -> list[str]:
    """Files that the user has made his own, or changed again, since the container read config/."""
    if now.config_sha256 is None or not now.ready:
        return []
    manifest = project.manifest
    found = []
    for name in CONFIG_FILES:
        try:
            text = read_text(project.folder / "config" / name)
        except DshpcError as error:  # the cluster goes on, and its state is what was asked for
            found.append(f"{error.brief} {error.resolution[0]}")
            continue
        owner = ownership.classify(text, manifest.get(f"config/{name}"))
        read = now.config_sha256.get(name)
        if owner in ("custom", "edited") and ownership.digest(text or "") != read:
            found.append(f"config/{name} is not in force as it is now: dshpc reconfigure")
    return found


@dataclass(frozen=True)
class Late:
    """Settings that are not in force: where some cannot be used, these alone are told."""

    unread: str = ""  # why none could be read
    wrong: tuple[WrongSetting, ...] = ()
    behind: tuple[applied.Behind, ...] = ()  # changed since the files were made
    overruled: tuple[Overruled, ...] = ()  # by a file of the user's own
    decided: frozenset[str] = frozenset()  # by such a file alone
    refused: dict[str, Any] | None = None  # by the last configure-environment

    def sentences(self) -> list[str]:
        """One each."""
        if self.unread:
            return [self.unread]
        if self.wrong:
            return [f"{each.brief} {each.remedy}" for each in self.wrong]
        # What was refused is so once more: what to do is told with the refusal
        changed = [each.what if self.refused else each.sentence for each in self._to_apply()]
        return [*changed, *(each.sentence for each in self.overruled)]

    def in_short(self) -> list[str]:
        """At most one for each kind, for a start, which puts none of them in force."""
        if self.unread:
            return [self.unread]
        if self.wrong:
            named = ", ".join(dict.fromkeys(each.setting or each.where for each in self.wrong))
            return [
                f"Settings that cannot be used, and are not in force: {named}. See why: dshpc doctor"
            ]
        said = []
        if behind := self._to_apply():
            changed = ", ".join(f"{each.name} ({each.where})" for each in behind)
            said.append(f"Settings changed and not in force yet: {changed}. {self._how()}")
        if self.overruled:
            named = ", ".join(dict.fromkeys(each.setting for each in self.overruled))
            said.append(
                f"Settings not in force because the file that they go into is your own: {named}. "
                "See what to do: dshpc status"
            )
        return said

    def _how(self) -> str:
        if self.refused is None:
            return "To apply them: configure-environment"
        return "The last configure-environment was refused. See why: dshpc status"

    def _to_apply(self) -> list[applied.Behind]:
        """What a file of the user's own decides alone would not be applied by a run either."""
        return [each for each in self.behind if each.name not in self.decided]


def settings(project: Project, env: Mapping[str, str]) -> Late:
    """Those of the project folder, with what this shell says of them."""
    try:
        read = project.read_settings(env)
    except DshpcError as error:
        return Late(f"{error.brief} {' '.join(error.resolution)}")
    now = read.settings
    wrong = (*read.wrong, *wrong_settings(now))
    if wrong:
        return Late(wrong=tuple(sorted(wrong, key=lambda each: each.place)))
    behind = tuple(applied.behind(project.read_note(SETTINGS), now))
    return Late(
        behind=behind,
        overruled=own_files.of_project(project, now),
        decided=own_files.decided(own_files.own_files(project)),
        refused=refused.standing(project, now),
    )
