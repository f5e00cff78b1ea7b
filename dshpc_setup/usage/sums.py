"""Jobs added up: GPU hours by user, method, type of GPU and week. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from dshpc_setup.usage.records import JobUse

By = Literal["user", "method", "gpu-type", "week"]
SCHEMA = "dshpc.usage/1"
BY: tuple[By, ...] = ("user", "method", "gpu-type", "week")


@dataclass(frozen=True)
class Sum:
    """GPUs of jobs that are alike in the four. `used_s` is what was computed of `measured_s`."""

    user: str = ""
    method: str = ""  # "" for what is no method's
    gpu_type: str = ""
    week: str = ""  # "2026-W48", of the end of the job, UTC
    jobs: int = 0
    held_s: float = 0.0
    measured_s: float = 0.0
    used_s: float = 0.0
    energy_j: float = 0.0

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.user, self.method, self.gpu_type, self.week

    def plus(self, other: Sum) -> Sum:
        return replace(
            self,
            jobs=self.jobs + other.jobs,
            held_s=self.held_s + other.held_s,
            measured_s=self.measured_s + other.measured_s,
            used_s=self.used_s + other.used_s,
            energy_j=self.energy_j + other.energy_j,
        )

    def to_json(self, by: By) -> dict[str, Any]:
        measured = self.measured_s > 0
        return {
            by.replace("-", "_"): getattr(self, by.replace("-", "_")),
            "jobs": self.jobs,
            "gpu_seconds_held": round(self.held_s, 1),
            "gpu_seconds_measured": round(self.measured_s, 1),
            "gpu_seconds_used": round(self.used_s, 1) if measured else None,
            "energy_j": round(self.energy_j, 1) if measured else None,
        }


def week(seconds: float) -> str:
    return time.strftime("%G-W%V", time.gmtime(seconds))


def of_job(job: JobUse) -> list[Sum]:
    """One for each type of its GPUs; [] for a job without one. Its number counts once."""
    found: dict[str, Sum] = {}
    for gpu in job.gpus:
        kind, use = gpu.type or "", gpu.use
        measured = use is not None and use.mean_percent is not None
        own = Sum(
            job.user, job.method or "", kind, week(job.ended),
            held_s=job.seconds,
            measured_s=use.measured_s if use is not None and measured else 0.0,
            used_s=use.measured_s * (use.mean_percent or 0.0) / 100 if use is not None else 0.0,
            energy_j=(use.energy_j or 0.0) if use is not None else 0.0,
        )  # fmt: skip
        found[kind] = found[kind].plus(own) if kind in found else own
    return [replace(each, jobs=1 if at == 0 else 0) for at, each in enumerate(found.values())]


def together(sums: Iterable[Sum]) -> list[Sum]:
    """Those that are alike as one."""
    found: dict[tuple[str, str, str, str], Sum] = {}
    for each in sums:
        found[each.key] = found[each.key].plus(each) if each.key in found else each
    return list(found.values())


def grouped(sums: Iterable[Sum], by: By) -> list[Sum]:
    """One for each user, method, type or week: those with most hours first, weeks in their order."""
    field = by.replace("-", "_")
    only = together(
        replace(Sum(), **{
            field: getattr(each, field), "jobs": each.jobs, "held_s": each.held_s,
            "measured_s": each.measured_s, "used_s": each.used_s, "energy_j": each.energy_j,
        })
        for each in sums
    )  # fmt: skip
    if by == "week":
        return sorted(only, key=lambda each: each.week)
    return sorted(only, key=lambda each: (-each.held_s, each.key))


def told(sums: Iterable[Sum], by: By) -> dict[str, Any]:
    """The `dshpc.usage/1` object."""
    rows = [each.to_json(by) for each in grouped(sums, by)]
    return {"schema": SCHEMA, "exit_code": 0, "by": by, "rows": rows}
