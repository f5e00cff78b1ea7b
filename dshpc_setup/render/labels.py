"""The labels of a compose file of ours: whose containers these are, and that nobody has changed the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dshpc_setup.files import ownership
from dshpc_setup.project.folder import GPUS_LABEL, LABEL

if TYPE_CHECKING:  # most read a file only
    from dshpc_setup.plan import ClusterPlan

PROJECT_LABEL = LABEL
RENDERED_LABEL = "org.dshpc.rendered"
_LABEL_LENGTH = 32
_WORKER = re.compile(r"^  slurm-\d+:\n.*?(?=^  slurm-\d+:\n|^\nvolumes:\n|\Z)", re.M | re.S)


def parts(text: str) -> tuple[str, tuple[str, ...]]:
    """A compose file without its workers, and the lines of each worker: each part carries a label of its
    own, so that a node that comes or goes makes no other container anew."""
    return _WORKER.sub("", text), tuple(found[0] for found in _WORKER.finditer(text))


def part_of(text: str, container: str) -> str | None:
    """The part that a container is made from; None of one that is none of these."""
    main, workers = parts(text)
    name = re.compile(rf'^    container_name: "{re.escape(container)}"$', re.M)
    found = next((each for each in workers if name.search(each)), None)
    return found or (main if re.search(r"-slurm-\d+$", container) is None else None)


def rendered_label(text: str) -> str | None:
    """The digest that a part of a compose file of ours carries in its label."""
    found = re.search(rf'^ +{re.escape(RENDERED_LABEL)}: "([0-9a-f]+)"$', text, re.MULTILINE)
    return found[1] if found else None


def is_as_rendered(text: str) -> bool:
    """Whether a compose file is one that we wrote and nobody has changed since: its label proves it."""
    main, workers = parts(text)
    return all(map(_is_labelled, (main, *workers)))


def _is_labelled(part: str) -> bool:
    label = rendered_label(part)
    if label is None:
        return False
    blank = part.replace(f'{RENDERED_LABEL}: "{label}"', f'{RENDERED_LABEL}: ""')
    return digest(blank) == label


def digest(part: str) -> str:
    """What the label of a part says, which holds an empty one."""
    return ownership.digest(part)[:_LABEL_LENGTH]


def gpus_label(plan: ClusterPlan) -> dict[str, str]:
    """By which another cluster with the same GPUs is told; none where they are made up, or there is none."""
    if plan.simulated or not plan.gres:
        return {}
    names = (gpu.uuid or gpu.pci_bus_id or ":".join(gpu.device_files) for gpu in plan.gpus)
    return {GPUS_LABEL: ",".join(sorted({name for name in names if name}))}
