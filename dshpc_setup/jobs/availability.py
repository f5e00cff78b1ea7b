"""What of the node's GPUs is free at this moment, and until when the others are held."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dshpc_setup.jobs.offer import Offer
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm

if TYPE_CHECKING:
    from dshpc_setup.slurm.holders import Holder

_ASK_S = 10.0
_KEPT = "/run/dshpc/longest_wait.json"  # imports are counted: the same as longest_wait.FILE
# "gpu:h100:2(IDX:0-1)"; without a type "gpu:2(IDX:0-1)" or "gpu:(null):2(IDX:0-1)"
_HELD = re.compile(r"(?:^|,)gpu:(?:([^,:()]+|\(null\)):)?([0-9]{1,6})\(")
_MOST = 4096  # characters of a job's text


@dataclass(frozen=True)
class Availability:
    """`held`: Slurm type -> when each GPU of it that is held becomes free, in seconds of the epoch
    and at the latest; None where the job's time has no end."""

    held: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # type -> "job 12 of ada"

    def used(self, slurm_type: str) -> int:
        return len(self.held.get(slurm_type, ()))

    def until(self, slurm_type: str) -> float:
        """When all of that type are free: 0 where they are, infinity where nobody knows."""
        ends = self.held.get(slurm_type, ())
        return max((float("inf") if end is None else end for end in ends), default=0.0)


def ask(machine: Machine, has: Offer) -> Availability | None:
    """None where the controller does not say."""
    jobs = holders(machine)
    return None if jobs is None else on(machine, jobs, has)


def holders(machine: Machine) -> tuple[Holder, ...] | None:
    """The jobs that hold GPUs of any node; None where the controller does not say."""
    return Slurm(machine).holders(deadline_s=_ASK_S).value


def on(machine: Machine, jobs: Sequence[Holder], has: Offer) -> Availability:
    """What they leave of the node of that offer, less what is kept there for one that waits."""
    if has.nodes > 1:
        there = ((job, job.on(has.node)) for job in jobs if has.node in job.nodes)
        jobs = [replace(job, held=(held,), nodes=(has.node,)) for job, held in there]
    types = tuple(gpu.slurm_type for gpu in has.gpus)
    return _without_kept(of(jobs, types), types, _kept(machine, has.node))


def _kept(machine: Machine, node: str) -> Mapping[str, object]:
    """Type -> the job for which those of it are kept that are free: container/longest_wait.py."""
    text = machine.read(_KEPT).text
    if not text:
        return {}
    from dshpc_setup.documents import foreign

    try:
        said = foreign.value(text)
        kept = said["nodes"].get(node, {}) if said["until"] > time.time() else {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _without_kept(
    now: Availability, types: Sequence[str], kept: Mapping[str, object]
) -> Availability:
    held, holders = dict(now.held), dict(now.holders)
    for kind, first in kept.items():
        left = types.count(kind) - now.used(kind)
        if left > 0:
            held[kind] = (*held.get(kind, ()), *[None] * left)
            holders[kind] = (*holders.get(kind, ()), *[f"job {first}, which comes first,"] * left)
    return Availability(held, holders)


def of(jobs: Sequence[Holder], types: Sequence[str] = ()) -> Availability:
    """`types` of all GPUs, as Slurm counts them, say which GPU a share is of."""
    found: dict[str, tuple[float | None, ...]] = {}
    holders: dict[str, tuple[str, ...]] = {}
    shared: dict[int, list[tuple[float | None, str]]] = {}
    for job in jobs:
        holder = f"job {job.job_id}{f' of {job.user}' if job.user else ''}"
        for detail in job.held:
            for kind, count in _HELD.findall(detail[:_MOST]):
                name = "" if kind == "(null)" else kind
                found[name] = (*found.get(name, ()), *[job.until] * int(count))
                holders[name] = (*holders.get(name, ()), *[holder] * int(count))
            for place in _shares(detail[:_MOST], len(types)):
                shared.setdefault(place, []).append((job.until, holder))
    for place, some in shared.items():
        name, ends = types[place], [end for end, _ in some if end is not None]
        last = max(ends) if len(ends) == len(some) else None
        found[name] = (*found.get(name, ()), last)
        holders[name] = (*holders.get(name, ()), *[holder for _, holder in some])
    return Availability(found, holders)


def _shares(detail: str, gpus: int) -> tuple[int, ...]:
    """The places of the GPUs of which a job has shares; () where it speaks of another number of them."""
    if "shard:" not in detail and "mps:" not in detail:
        return ()
    from dshpc_setup.jobs import allocated_gpus  # imports are counted

    return tuple(
        place for places, of in allocated_gpus.shares(detail) if of == gpus for place in places
    )
