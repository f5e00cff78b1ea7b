"""What somebody has changed in a project folder and nobody has applied: a sentence for each."""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup.apply.apply import read_text
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import ownership
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.plan import wrong_settings
from dshpc_setup.project.folder import SETTINGS, Project
from dshpc_setup.render.configuration import CONFIG_FILES
from dshpc_setup.settings import WrongSetting, applied


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


def settings(project: Project, env: Mapping[str, str]) -> list[str]:
    """Settings that are others since the files were made; where some cannot be used, these alone."""
    try:
        wrong, behind = _settings(project, env)
    except DshpcError as error:
        return [_unread(error)]
    if wrong:
        return [f"{each.brief} {each.remedy}" for each in wrong]
    return [each.sentence for each in behind]


def settings_in_short(project: Project, env: Mapping[str, str]) -> list[str]:
    """The same in one sentence at most, for a start, which puts none of them in force."""
    try:
        wrong, behind = _settings(project, env)
    except DshpcError as error:
        return [_unread(error)]
    if wrong:
        named = ", ".join(dict.fromkeys(each.setting or each.where for each in wrong))
        return [
            f"Settings that cannot be used, and are not in force: {named}. See why: dshpc doctor"
        ]
    if not behind:
        return []
    changed = ", ".join(f"{each.name} ({each.where})" for each in behind)
    return [
        f"Settings changed and not in force yet: {changed}. To apply them: configure-environment"
    ]


def _settings(
    project: Project, env: Mapping[str, str]
) -> tuple[list[WrongSetting], list[applied.Behind]]:
    """Those that cannot be used in the order of the file, and those that are changed."""
    read = project.read_settings(env)
    wrong = (*read.wrong, *wrong_settings(read.settings))
    behind = applied.behind(project.read_note(SETTINGS), read.settings)
    return sorted(wrong, key=lambda each: each.place), list(behind)


def _unread(error: DshpcError) -> str:
    return f"{error.brief} {' '.join(error.resolution)}"
