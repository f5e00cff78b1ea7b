"""What somebody has changed in a project folder and nobody has applied: a sentence for each."""

from __future__ import annotations

from collections.abc import Mapping

from dshpc_setup import ownership
from dshpc_setup.apply import read_text
from dshpc_setup.cluster.status import ClusterStatus
from dshpc_setup.errors import DshpcError
from dshpc_setup.plan import wrong_settings
from dshpc_setup.project import SETTINGS, Project
from dshpc_setup.render import CONFIG_FILES
from dshpc_setup.settings import applied


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
        read = project.read_settings(env)
    except DshpcError as error:
        return [f"{error.brief} {' '.join(error.resolution)}"]
    wrong = (*read.wrong, *wrong_settings(read.settings))
    if wrong:
        in_order = sorted(wrong, key=lambda each: each.place)
        return [f"{each.brief} {each.remedy}" for each in in_order]
    behind = applied.behind(project.read_note(SETTINGS), read.settings)
    return [each.sentence for each in behind]
