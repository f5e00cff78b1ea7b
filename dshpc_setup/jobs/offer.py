"""What a cluster offers to jobs: its GPUs by type, CPUs, memory, partitions.

The container writes it at every start and reconfigure, so that a submission chooses among GPU types
without asking anything. What is free at this moment is another question (`room.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dshpc_setup import codec
from dshpc_setup.project.writers import login_of

SCHEMA = "dshpc.offer/1"
FILE = "/run/dshpc/offer.json"
NODES = "/var/lib/dshpc/state/nodes"  # a folder for each node, where there are several


@dataclass(frozen=True)
class OfferedGpu:
    """A GPU, MIG instance or partition that jobs can get; `index` as `dshpc detect` counts cards."""

    index: int
    uuid: str | None
    slurm_type: str  # in `gpu:TYPE:N`
    model: str  # "h100", "1g.10gb": the same for all of one kind, whatever `gres_type`
    name: str  # "NVIDIA H100 80GB HBM3"
    vendor: str
    memory_mib: int | None
    compute: str | None  # "9.0"; None for other vendors, or not known
    is_part: bool = False  # a MIG instance or a partition of a card
    sold_gb: int | None = None  # the size that it is sold by: 80 of a card that reports 81559 MiB


def _array_size() -> int:
    """Imports are counted: an offer of this version says it."""
    from dshpc_setup.slurm_releases import SHIPPED

    return SHIPPED.defaults.array_size


@dataclass(frozen=True)
class Offer:
    """`aliases`: what people may say -> the Slurm types that it means, the best first."""

    node: str
    cpus: int
    memory_mib: int
    gpus: tuple[OfferedGpu, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    shards: int = 0
    cuda: str | None = None  # the newest that the driver offers
    partitions: tuple[tuple[str, str], ...] = ()  # name, MaxTime; the default one first
    gres_type: Literal["model", "index"] = "model"  # as of the plan
    isolation: str = "default"
    simulated: bool = False
    max_array: int = field(default_factory=_array_size)  # tasks of one array: MaxArraySize
    nodes: int = 1  # of the cluster, where this is one of several
    own_work: bool = False  # its work folder is not the one where jobs are submitted
    carried_work: str = (
        ""  # of such a one: its folder to which workspaces are carried, and from there back
    )
    owner: int | None = None  # the user whose jobs alone it takes
    without_work: tuple[
        str, ...
    ] = ()  # all nodes of the cluster that have it not, and do not carry
    carriers: tuple[str, ...] = ()  # all that carry
    processor: str = ""  # as `uname -m` says it

    @property
    def holder(self) -> str:
        """What has all that, in words."""
        return "this cluster" if self.nodes == 1 else f"node {self.node}"

    def takes(self, uid: int) -> bool:
        """Whether jobs of this user may run there; root's do where they name it."""
        return self.owner in (None, uid)

    @property
    def carries(self) -> bool:
        return self.own_work and bool(self.carried_work)

    @property
    def is_apart(self) -> bool:
        """Whether a job's workspace gets there in no way."""
        return self.own_work and not self.carries

    def to_json(self) -> dict[str, Any]:
        return codec.to_json(self, SCHEMA)


def other_work(node: str, *, carries: bool) -> str:
    """What is said of a node whose work folder is another one."""
    if carries:
        return (
            f"{node} has another work folder: dshpc run, methods and workflows take their workspace there "
            "and back; what sbatch and srun start there finds the files of that machine."
        )
    return (
        f"{node} has another work folder: dshpc run, methods and workflows keep off it. Share the folder, "
        "then join again there."
    )


def owner_name(uid: int) -> str:
    """As this machine's users are called; one whom it does not know goes by the number."""
    return login_of(uid) or f"user number {uid}"


def owners_alone(node: str, owner: int) -> str:
    """What is said of a node that takes the jobs of its owner alone."""
    return (
        f"{node} takes the jobs of {owner_name(owner)} alone: its machine's user has no range of ids. For "
        "all users: give that user one in /etc/subuid and /etc/subgid there, and join again."
    )


def from_json(value: Any) -> Offer:
    """The offer; raises ValueError for an object of another schema or shape."""
    return codec.from_json(Offer, value, SCHEMA, unknown="refused")
