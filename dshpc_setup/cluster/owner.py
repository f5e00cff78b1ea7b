"""Whose a cluster's name is: a container or a volume of another folder is never touched unasked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.render.labels import PROJECT_LABEL
from dshpc_setup.render.volumes import VOLUMES
from dshpc_setup.settings import Settings


def refuse_others(
    machine: Machine, project: Project, settings: Settings, *, take_over: bool
) -> None:
    """Raises DshpcError where the prefix is another folder's, or its container nobody's of us."""
    found = containers.inspect(machine, settings.container)
    here = str(project.folder)
    if found is not None:
        owner = found.labels.get(PROJECT_LABEL)
        if owner is None:
            raise _not_ours(settings.container)
        if owner != here and not take_over:
            raise _of_another(settings, owner, f"Its container is {settings.container}.")
        return
    if take_over:
        return
    for volume in (f"{settings.prefix}-{part}" for part in VOLUMES):
        owner = containers.volume_label(machine, volume, PROJECT_LABEL)
        if owner not in (None, here, project.runtime().get("volumes_of")):
            raise _of_another(settings, str(owner), f"It has the volume {volume}.")


def former_owner(machine: Machine, settings: Settings) -> str | None:
    """The folder that the prefix's volumes were made for; engines cannot label a volume anew."""
    return containers.volume_label(machine, f"{settings.prefix}-state", PROJECT_LABEL)


def _not_ours(container: str) -> DshpcError:
    return DshpcError(
        f"There is a container {container} already, and it is not ours.",
        "It was not made by configure-environment, so it is left alone.",
        (
            "Choose another name: --prefix NAME.",
            f"Or remove it yourself: docker rm -f {container}",
        ),
    )


def steps(owner: str) -> Iterator[str]:
    """What to do where a cluster is of another folder, or of this one before it was moved."""
    if not os.path.isdir(owner):
        yield (
            f"If you moved {owner} here, take its cluster along with its queue, users, homes and key: "
            "configure-environment --take-over"
        )
    else:
        yield f"For that cluster: cd {shlex.quote(owner)}"
    yield "For one of its own here: configure-environment --prefix NAME"
    if os.path.isdir(owner):
        yield "To replace it (its queue, users, homes and key stay): configure-environment --take-over"


def _of_another(settings: Settings, owner: str, what: str) -> DshpcError:
    return DshpcError(
        f"The cluster {settings.prefix} belongs to another folder: {owner}.",
        what,
        tuple(steps(owner)),
    )
