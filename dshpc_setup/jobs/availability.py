"""What of the node's GPUs is free at this moment, and until when the others are held."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.jobs.offer import Offer
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import answers
from dshpc_setup.slurm.answers import number

_ASK_S = 10.0
# States in which GPUs are held
_ARGV = (
    "squeue", "--json", "-a",
    "-t", "RUNNING,SUSPENDED,STOPPED,COMPLETING,CONFIGURING,SIGNALING,STAGE_OUT,RESIZING",
)  # fmt: skip
# "gpu:h100:2(IDX:0-1)"; without a type "gpu:2(IDX:0-1)" or "gpu:(null):2(IDX:0-1)"
_HELD = re.compile(r"(?:^|,)gpu:(?:([^,:()]+|\(null\)):)?([0-9]{1,6})\(")
_MOST = 4096  # characters of a job's text
# Minutes: what sched/backfill gives a job without a limit that it starts (a year; 24.11.5)
_NO_LIMIT = 365 * 24 * 60


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
    asked = machine.run(_ARGV, deadline_s=_ASK_S)
    types = tuple(gpu.slurm_type for gpu in has.gpus)
    return parse(asked.stdout, types) if asked.ok else None


def parse(text: str, types: Sequence[str] = ()) -> Availability | None:
    """`squeue --json`; None for what is none of its answers. `types` of all GPUs, as Slurm counts them,
    say which GPU a share is of."""
    try:
        found: dict[str, tuple[float | None, ...]] = {}
        holders: dict[str, tuple[str, ...]] = {}
        shared: dict[int, list[tuple[float | None, str]]] = {}
        for job in answers.objects(text, "jobs"):
            end, holder = _end(job), _holder(job)
            for detail in job.get("gres_detail") or ():
                for kind, count in _HELD.findall(str(detail)[:_MOST]):
                    name = "" if kind == "(null)" else kind
                    found[name] = (*found.get(name, ()), *[end] * int(count))
                    holders[name] = (*holders.get(name, ()), *[holder] * int(count))
                for place in _shares(str(detail)[:_MOST], len(types)):
                    shared.setdefault(place, []).append((end, holder))
        for place, some in shared.items():
            name, ends = types[place], [end for end, _ in some if end is not None]
            last = max(ends) if len(ends) == len(some) else None
            found[name] = (*found.get(name, ()), last)
            holders[name] = (*holders.get(name, ()), *[holder for _, holder in some])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    return Availability(found, holders)


def _shares(detail: str, gpus: int) -> tuple[int, ...]:
    """The places of the GPUs of which a job has shares; () where it speaks of another number of them."""
    if "shard:" not in detail and "mps:" not in detail:
        return ()
    from dshpc_setup.jobs import allocated_gpus  # imports are counted

    return tuple(
        place for places, of in allocated_gpus.shares(detail) if of == gpus for place in places
    )


def _holder(job: Mapping[str, Any]) -> str:
    user = job.get("user_name")
    return f"job {answers.job_name(job)}" + (
        f" of {user}" if isinstance(user, str) and user else ""
    )


def _end(job: Mapping[str, Any]) -> float | None:
    limit = job.get("time_limit")
    # Not yet set in a job's first moments: its end is then a year away, as for one without a limit
    if isinstance(limit, dict) and (limit.get("infinite") or limit.get("set") is False):
        return None
    if number(limit) == _NO_LIMIT:
        return None
    end = number(job.get("end_time"))
    return float(end) if end is not None and end > 0 else None
