"""A GPU that a job holds and does not use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup import codec
from dshpc_setup.usage.live import Kept, told_time


@dataclass(frozen=True)
class IdleGpu:
    """`idle_s` since its last use, or since the job has it."""

    job: str  # "17", "17_2"
    user: str
    name: str
    gpu: int | None  # its index
    uuid: str | None
    idle_s: float


def of_kept(kept: Kept) -> tuple[IdleGpu, ...]:
    """Those that have been idle for longer than the setting idle_gpu."""
    return tuple(
        IdleGpu(job.id or str(job.own), job.user or str(job.uid), job.name or "", gpu.index, gpu.uuid, idle_s)
        for job, gpu, idle_s in kept.idle()
    )  # fmt: skip


def read(report: Mapping[str, Any]) -> tuple[IdleGpu, ...]:
    """Of a start report; none in that of an earlier version."""
    found = report.get("idle_gpus")
    try:
        return tuple(codec.from_json(IdleGpu, each) for each in found or ())
    except (TypeError, ValueError):
        return ()


def line(idle: IdleGpu) -> str:
    """ "GPU 0, held by job 17 (ada, train), has not been used for 45 min"; its words are the job's own."""
    gpu = "A GPU" if idle.gpu is None else f"GPU {idle.gpu}"
    who = f"job {idle.job} ({idle.user}, {idle.name})"
    return f"{gpu}, held by {who}, has not been used for {told_time(idle.idle_s)}"
