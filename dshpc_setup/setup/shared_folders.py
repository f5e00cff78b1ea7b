"""Folders of the machine that jobs see: users' own homes and the setting `mounts`, looked at before
anything is made or stopped."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dshpc_setup.builtin_client import containers
from dshpc_setup.engine import privilege
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.facts import HostFacts
from dshpc_setup.files import anchored
from dshpc_setup.machine import Machine
from dshpc_setup.project import trust
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.settings import Settings
from dshpc_setup.settings.places import (
    folder_of,
    hides_the_system,
    is_an_engines,
    lies_in,
    unfit_for_mount,
)
from dshpc_setup.terminal.sanitize import plain

_USUAL = "/home"
_OF_PROJECT = (OWN, "config")  # where its keys, its state and what it starts with lie


def with_homes(
    machine: Machine, project: Project, settings: Settings, facts: HostFacts
) -> Settings:
    """With the folders above users' homes, where the cluster is to see these: as `home` says; without it a
    new cluster does where it can, and one that is there keeps what it has.

    Raises DshpcError where they are asked for and cannot be.
    """
    if settings.home == "kept":
        return replace(settings, homes=())
    before = project.with_homes(settings).homes
    why = why_not(machine, facts)
    if settings.home == "host" and why is not None:
        raise _refused(settings, why)
    is_there = bool(project.manifest)
    labelled = facts.platform.selinux == "enforcing"  # which would have to be lifted for it
    if settings.home == "" and (why is not None or (is_there and not before)):
        return replace(settings, homes=())
    if settings.home == "" and not is_there and labelled:
        return replace(settings, homes=())
    found = tuple(dict.fromkeys((*before, *_roots(machine))))
    if settings.home == "host" and not found:
        raise _refused(settings, "There is no /home here, and your own home is in no other folder.")
    return replace(settings, homes=found)


def why_not(machine: Machine, facts: HostFacts) -> str | None:
    """Why a job would not be its user in a folder of the machine's: a sentence; None where it is."""
    engine = facts.engine
    if engine.kind == "builtin":
        if containers.ids_of(machine).way == "single":
            return "The container has one user, as whom all files would be written."
        return None
    if engine.rootless:
        return "The engine is rootless: a job is another user on this machine than in the cluster."
    if any(option.split(",")[0] == "name=userns" for option in engine.security_options):
        return "The engine maps users (userns-remap): a job is another user on this machine."
    if engine.kind in ("desktop", "remote"):
        return "The engine runs on another machine, or in a virtual one, with users of its own."
    return None


def _roots(machine: Machine) -> tuple[str, ...]:
    """/home, and the folder above the caller's home where that is another; root's own is not lent."""
    caller = privilege.caller(machine)
    above = os.path.dirname(caller.home.rstrip("/"))
    found = []
    for each in (_USUAL, above if caller.uid != 0 else _USUAL):
        fit = each == _USUAL or not (hides_the_system(each) or unfit_for_mount(each))
        if each.startswith("/") and fit and os.path.isdir(each) and each not in found:
            found.append(each)
    return tuple(found)


def _refused(settings: Settings, why: str) -> DshpcError:
    return DshpcError(
        f"The setting home = host ({settings.sources['home'].where}) cannot be kept here.",
        why,
        (
            Fix(
                "Keep homes in a volume of the cluster's",
                "dshpc config set home kept",
                step="alternative",
            ),
            "Or use an engine that runs as root on this machine: --engine docker",
        ),
    )


def need_mounts(project: Path, settings: Settings) -> None:
    """Raises DshpcError (usage) for the first folder of `mounts` that cannot be meant, or must not be."""
    for each in settings.mounts:
        folder = folder_of(each)
        why = unfit(folder, project)
        if why is not None:
            raise _unmounted(settings, folder, why, "Make it, or bring it back.")


def need_followed(settings: Settings, facts: HostFacts) -> None:
    """Raises DshpcError (usage) for a mount that the built-in engine would refuse at its start: for root it
    follows no link of others, and those of who called sudo are such."""
    for each in settings.mounts if facts.engine.kind == BUILTIN else ():
        try:
            os.close(anchored.open_file(Path(folder_of(each)), os.O_PATH | os.O_CLOEXEC))
        except OSError as error:
            why = error.strerror or str(error)
            todo = "Name the folder that it leads to."
            raise _unmounted(settings, folder_of(each), why, todo) from None


def _unmounted(settings: Settings, folder: str, why: str, todo: str) -> DshpcError:
    return usage_error(
        f"The folder {plain(folder)} cannot be mounted: {why}.",
        f"It is of the setting mounts, of {settings.sources['mounts'].where}. Nothing was stopped or "
        "changed.",
        todo,
        "Or name other folders, none by an empty list: configure-environment --mounts LIST",
    )


def unfit(
    folder: str, project: Path, hides: Callable[[str], bool] = hides_the_system
) -> str | None:
    """Why a folder of the machine must not be mounted: words; None where it may be. `hides`: of where a link
    leads, whether that is the system's."""
    try:
        seen = os.stat(folder)
    except FileNotFoundError:
        return "it is a link that leads nowhere" if os.path.islink(folder) else "it is not there"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if not stat.S_ISDIR(seen.st_mode):
        return "it is a socket" if stat.S_ISSOCK(seen.st_mode) else "it is no folder"
    real = os.path.realpath(folder)
    if real != folder:
        if (link := _link_of_others(folder)) is not None:
            return f"the link {plain(link)} on the way is another user's, who can turn it elsewhere"
        if hides(real) or is_an_engines(real):
            return f"it leads to {plain(real)}, which is the system's"
    for name in _OF_PROJECT:
        if lies_in(real, os.path.realpath(project / name)):
            return "it is where this cluster keeps its keys and what it starts with"
    return None


def _link_of_others(path: str) -> str | None:
    """The first link on the way that is neither root's nor the caller's."""
    at = ""
    for part in path.strip("/").split("/"):
        at = f"{at}/{part}"
        if os.path.islink(at) and os.lstat(at).st_uid not in trust.ours():
            return at
    return None
