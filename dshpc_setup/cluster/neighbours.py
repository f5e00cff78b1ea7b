"""Other clusters of this engine: those that hand the same GPUs to jobs, and those of the same folder."""

from __future__ import annotations

from collections.abc import Iterable

from dshpc_setup.engine import containers
from dshpc_setup.machine import Machine
from dshpc_setup.observed.model import OtherCluster
from dshpc_setup.project.folder import GPUS_LABEL
from dshpc_setup.render.labels import PROJECT_LABEL
from dshpc_setup.render.volumes import VOLUMES

_END = "-slurm"


def sharing(machine: Machine, own: str, label: str) -> tuple[OtherCluster, ...]:
    """The running clusters that have GPUs of `own`, whose label GPUS_LABEL is given."""
    gpus = frozenset(filter(None, label.split(",")))
    found = []
    for name in containers.containers(machine, GPUS_LABEL) if gpus else ():
        other = containers.inspect(machine, name) if name != own else None
        if other is None or not other.running:
            continue
        both = gpus.intersection(other.labels.get(GPUS_LABEL, "").split(","))
        if both:
            folder = other.labels.get(PROJECT_LABEL, "")
            found.append(OtherCluster(name.removesuffix(_END), folder, tuple(sorted(both))))
    return tuple(found)


def of_folder(machine: Machine, folder: str, own: str) -> tuple[str, ...]:
    """Prefixes of the other clusters that were set up in the folder, down or not, sorted."""
    label = f"{PROJECT_LABEL}={folder}"
    boxes = containers.containers(machine, label)
    prefixes = {name.removesuffix(_END) for name in boxes if name.endswith(_END)}
    prefixes |= set(_of_volumes(containers.volumes(machine, label)))
    return tuple(
        prefix
        for prefix in sorted(prefixes - {own})
        # another folder may have taken it over, volumes and all
        if f"{prefix}{_END}" in boxes or containers.inspect(machine, f"{prefix}{_END}") is None
    )


def _of_volumes(names: Iterable[str]) -> Iterable[str]:
    ends = tuple(f"-{part}" for part in VOLUMES)
    return (name.rpartition("-")[0] for name in names if name.endswith(ends))
