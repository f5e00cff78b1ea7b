"""Queued jobs that cannot run as things are, each with the reason in plain words.

A held job is one of them until it is released. One that only waits for others, for its time or for its turn
is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dshpc_setup import slurm_releases
from dshpc_setup.slurm.pending import NodeResources, Queue, Request
from dshpc_setup.slurm_releases.model import HeldBy
from dshpc_setup.terminal.sanitize import plain

MOST = 10  # jobs that are named; the others are counted

Hold = Literal["person", "administrator", "launch", "lost_reservation"]
"""Why Slurm does not look at a job until it is released: a person wants it so, an administrator (or Slurm,
where it could not go on), its launch failed, or its reservation is gone."""

Until = Literal["node", "partition", "unknown"]
"""What lets it run without a change to the job: a node or its partition in use again; "unknown": Slurm has a
reason that is not known here."""


@dataclass(frozen=True)
class Stuck:
    """A job that cannot run as things are, and why."""

    job: str
    user: str
    name: str
    why: str
    hold: Hold | None = None  # of a held job: released, it can run
    asks_for: str | None = None  # the GRES ("gpu", "shard") of which the cluster has not enough
    until: Until | None = None  # None: it can never run as it is, or is held

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def lacks_gpus(self) -> bool:
        """Whether the cluster has not the GPUs, or the shares of one, that it wants."""
        return self.asks_for in ("gpu", "shard", "mps")


def judge(queue: Queue) -> tuple[Stuck, ...]:
    """The jobs that cannot run as things are, in the order of the queue."""
    return tuple(stuck for job in queue.jobs if (stuck := _judged(job, queue)) is not None)


def _judged(job: Request, queue: Queue) -> Stuck | None:
    """None for a job that only waits."""
    by = slurm_releases.held_by(job.reason)
    if by is not None:
        hold, how = _HELD[by]
        return Stuck(job.job, job.user, job.name, f"{how}: dshpc scontrol release {job.id}", hold)
    never = _never(job) or _no_partition(job, queue.partitions)
    if never is None and (why := _partition_off(job, queue.partitions)):
        return Stuck(job.job, job.user, job.name, why, until="partition")
    lack = None if never else _gres_lack(job, queue.nodes)
    if lack is not None:
        kind, why = lack
        return Stuck(job.job, job.user, job.name, why, asks_for=kind)
    if never := never or _too_much(job, queue.nodes):
        return Stuck(job.job, job.user, job.name, never)
    if why := _no_node(queue.nodes):
        return Stuck(job.job, job.user, job.name, why, until="node")
    if never := _unfit(job, queue.nodes):
        return Stuck(job.job, job.user, job.name, never)
    if slurm_releases.passing_reason().fullmatch(job.reason):
        return None
    why = f"Slurm's reason is {job.reason}: dshpc scontrol show job {job.id}"
    return Stuck(job.job, job.user, job.name, why, until="unknown")


_LAUNCH_FAILED = (
    "it is held: its launch failed, as where a Prolog fails; when that is fixed, release it"
)
_OFTEN = "it is held: its launch failed too often; when that is fixed, release it"
_HELD: Mapping[HeldBy, tuple[Hold, str]] = {
    "person": ("person", "it is held; to release it"),
    "administrator": ("administrator", "it is held by an administrator; to release it, as root"),
    "launches": ("launch", _OFTEN),
    "launch": ("launch", _LAUNCH_FAILED),
    "requeue": ("person", "it is held: it was requeued so; to release it"),
    "special_exit": (
        "person",
        "it is held: it ended with its special exit code; to release it",
    ),
    "lost_reservation": (
        "lost_reservation",
        "it is held: its reservation was deleted; to release it",
    ),
}


def _never(job: Request) -> str | None:
    all_needed = "?" not in job.dependency  # a,b: both; a?b: one of them
    if slurm_releases.waits_for(job.reason) == "never" or (
        all_needed and "(failed)" in job.dependency
    ):
        asked = re.sub(r"\(\w+\)", "", job.dependency) or "its dependency"
        return f"what it waits for can no longer happen: {asked}; cancel it: dshpc scancel {job.id}"
    return None


def _no_partition(job: Request, partitions: Mapping[str, str]) -> str | None:
    names = ", ".join(job.partitions)
    if partitions and job.partitions and not any(name in partitions for name in job.partitions):
        return f"there is no partition {names} any more, only {', '.join(partitions)}"
    if slurm_releases.waits_for(job.reason) == "time_limit":
        return f"it asks for more time than the partition {names} allows"
    return None


def _partition_off(job: Request, partitions: Mapping[str, str]) -> str | None:
    known = [name for name in job.partitions if name in partitions]
    # One that drains takes no new jobs, and runs those that it has
    if known and all(partitions[name] not in ("up", "drain", "") for name in known):
        return f"the partition {', '.join(job.partitions)} is not up: {partitions[known[0]]}"
    return None


def _gres_lack(job: Request, nodes: tuple[NodeResources, ...]) -> tuple[str, str] | None:
    """The GRES that it asks for and no node has ("gpu"), and the sentence; of several nodes, the best
    one is named."""
    if not nodes or job.nodes > len(nodes):
        return None
    for name, count in job.gres_per_node.items():
        if count > max(_have(room, name) for room in nodes):
            return name.split(":")[0], _lack(f"{name}:{count}", _offer(nodes, name))
    for name, count in job.gres.items():
        if count > sum(_have(room, name) for room in nodes):
            return name.split(":")[0], _lack(f"{name}:{count}", _offer(nodes, name))
    return None


def _too_much(job: Request, nodes: tuple[NodeResources, ...]) -> str | None:
    """What else it asks for and no node has."""
    if not nodes:
        return None
    if job.nodes > len(nodes):
        return f"it asks for {job.nodes} nodes, there {_is(len(nodes))}"
    cpus = [room.cpus for room in nodes if room.cpus is not None]
    if job.cpus is not None and len(cpus) == len(nodes) and job.cpus > sum(cpus):
        return _lack(f"{job.cpus} CPUs", f"has {max(cpus)}")
    memory = [room.memory_mib for room in nodes if room.memory_mib is not None]
    if job.memory_mib is not None and len(memory) == len(nodes) and job.memory_mib > sum(memory):
        return _lack(f"{job.memory_mib} MiB of memory", f"has {max(memory)} MiB for jobs")
    return None


def _is(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def _lack(asked: str, offer: str) -> str:
    return f"it asks for {asked}, the node {offer}"


def _have(room: NodeResources, name: str) -> int:
    """How many of "gpu:h100" or, of any type, "gpu"."""
    total = room.status.gres_total
    return sum(count for key, count in total.items() if key == name or key.startswith(f"{name}:"))


def _offer(nodes: tuple[NodeResources, ...], name: str) -> str:
    kind = name.split(":")[0]
    texts = [
        f"{key}:{count}"
        for room in nodes
        for key, count in room.status.gres_total.items()
        if key.split(":")[0] == kind
    ]
    return f"has {', '.join(texts)}" if texts else f"has no {'GPU' if kind == 'gpu' else kind}"


def _no_node(nodes: tuple[NodeResources, ...]) -> str | None:
    """Every node is out of use."""
    if not nodes or any(room.status.usable for room in nodes):
        return None
    status = nodes[0].status
    why = f": {status.reason}" if status.reason else ""
    return f"the node {status.name} is {status.plain_state or status.state}{why}"


def _unfit(job: Request, nodes: tuple[NodeResources, ...]) -> str | None:
    """A node or a feature that it names and there is not."""
    if job.wanted_nodes and nodes and re.fullmatch(r"[\w.,-]+", job.wanted_nodes):
        names = {room.status.name for room in nodes}
        gone = [name for name in job.wanted_nodes.split(",") if name not in names]
        if gone:
            return f"it asks for the node {', '.join(gone)}, which there is not"
    if slurm_releases.waits_for(job.reason) == "unfit" and job.features:
        have = " or ".join(dict.fromkeys(room.features or "nothing" for room in nodes))
        return f"it asks for --constraint={job.features}, the node offers {have or 'nothing'}"
    return None


def lines(stuck: tuple[Stuck, ...]) -> list[str]:
    """The first ones for people, and how many there are beside them."""
    said = [f"{item.job} ({_shown(item.user, item.name)}): {item.why}" for item in stuck[:MOST]]
    if len(stuck) > MOST:
        said.append(f"and {len(stuck) - MOST} more: dshpc squeue --start --states=PENDING")
    return said


def _shown(*words: str) -> str:
    """What people wrote, on one line and without signs that move a terminal's cursor."""
    return ", ".join(plain(word)[:40] for word in words if word)


def held(stuck: tuple[Stuck, ...]) -> tuple[Stuck, ...]:
    """Those that can run once they are released."""
    return tuple(item for item in stuck if item.hold is not None)


def not_held(stuck: tuple[Stuck, ...]) -> tuple[Stuck, ...]:
    return tuple(item for item in stuck if item.hold is None)


def to_json(stuck: tuple[Stuck, ...]) -> dict[str, Any]:
    """`{"count": 12, "jobs": [the first ten]}`."""
    return {"count": len(stuck), "jobs": [item.to_json() for item in stuck[:MOST]]}
