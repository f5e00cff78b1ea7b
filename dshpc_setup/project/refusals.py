"""Why a folder is not used as a project, and what helps."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup.engine_client import BUILTIN, PODMAN
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.project import known, trust, writers
from dshpc_setup.project.trust import OWN

_MOST = 3  # clusters that are named


def no_project(folder: str, ignored: Sequence[trust.Place]) -> DshpcError:
    """Nothing in `folder` or above it tells of a cluster that may be used."""
    for place in reversed(ignored):
        if place.fault is not None:
            return unsafe(place.folder, place.fault)
    need_right_variable(folder)
    return DshpcError(
        f"There is no cluster in {folder} or above it.",
        f"No folder there holds {OWN}, which configure-environment makes.",
        (
            "Go to the folder where you ran configure-environment, or run it here.",
            *(
                Fix("Or say once which one you mean", f"dshpc use {each}", step="alternative")
                for each in _to_choose(os.environ)
            ),
            "Or name that folder in the environment variable DSHPC_DIR.",
        ),
    )


def need_right_variable(folder: str) -> None:
    """Where there is no cluster: raises DshpcError where it is DSHPC_DIR that names the folder."""
    named = os.environ.get("DSHPC_DIR")
    if not named or os.path.realpath(named) != os.path.realpath(folder):
        return
    there = "There is no cluster in" if os.path.isdir(folder) else "There is no folder"
    raise DshpcError(
        f"{there} {folder}, which the environment variable DSHPC_DIR names.",
        "",
        (
            Fix("Take it out", "unset DSHPC_DIR"),
            "Or name in it the folder in which configure-environment was run.",
        ),
    )


def _to_choose(environ: Mapping[str, str]) -> list[str]:
    """The clusters that this user has set up, else the one of the checkout whose `dshpc` was typed."""
    launcher = environ.get("DSHPC_COMMAND")
    beside = [os.path.dirname(launcher)] if launcher else []
    for folders in (known.clusters(environ), beside):
        there = [each for each in folders if trust.judged(os.path.realpath(each)).runtime]
        if there:
            return [shlex.quote(each) for each in there[:_MOST]]
    return ["DIR"]


def unsafe(folder: str, fault: trust.Fault) -> DshpcError:
    """A project folder that others could have written into."""
    return DshpcError(
        f"The folder {folder} is not used as a project: others can change what is read there.",
        fault.why,
        (fault.remedy, "Or choose another folder: --dir DIR, or DSHPC_DIR."),
    )


def need_own_engine(folder: str, runtime: Mapping[str, Any]) -> None:
    """Where a container is not found: raises DshpcError where it is one of another user's engine.

    All who may use Docker see the same containers; those of the other engines are one user's alone.
    """
    engine = runtime.get("engine")
    try:
        uid = os.stat(f"{folder}/{OWN}").st_uid
    except OSError:
        return
    # A project of sudo's belongs to its caller, and Podman's containers there are root's
    if uid == os.geteuid() or not (engine == BUILTIN or (engine == PODMAN and os.geteuid())):
        return
    name = writers.user_name(uid)
    title = "Podman" if engine == PODMAN else "the built-in engine"
    raise DshpcError(
        f"The cluster in {folder} belongs to {name}, and nobody else can use it.",
        f"It runs on {title}, where each user has containers of their own; with Docker, users share them.",
        (
            f"Ask {name} for a cluster on Docker: configure-environment --engine docker",
            "Or make one of your own in another folder: configure-environment --dir DIR",
        ),
    )


def of_another(place: trust.Place) -> DshpcError:
    """What lies in another user's folder would be run with our rights."""
    name, login = writers.user_name(place.uid), writers.login_of(place.uid)
    as_owner = f"sudo -u {login}" if login else f"sudo -u '#{place.uid}'"
    return DshpcError(
        f"The cluster in {place.folder} belongs to {name}.",
        f"This command uses its files, which {name} can write: they would run with your rights.",
        (
            f"Run it as that user: {as_owner} dshpc ...",
            "Or make one of your own in another folder: configure-environment --dir DIR",
        ),
    )
