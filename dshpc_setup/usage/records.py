"""What is kept of one job that has ended: values, and the line that each is written as."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dshpc_setup import codec
from dshpc_setup.documents import foreign


@dataclass(frozen=True)
class GpuUse:
    """What was measured of a GPU while a job held it; None for what its driver does not tell."""

    measured_s: float = 0.0  # for so long of the job something was known
    mean_percent: float | None = None
    peak_percent: int | None = None
    mean_memory_mib: int | None = None
    peak_memory_mib: int | None = None
    energy_j: float | None = None
    last_used: float | None = None  # seconds since 1970; None where it never was


@dataclass(frozen=True)
class HeldGpu:
    """A GPU that a job had; `type` is Slurm's."""

    index: int | None = None
    uuid: str | None = None
    type: str | None = None
    node: str | None = None
    use: GpuUse | None = None


@dataclass(frozen=True)
class JobUse:
    """One run of a job; times are seconds since 1970."""

    id: str  # "17", "17_2"
    own: int  # its number, also of a task of an array
    run: int  # how often it had been begun before
    user: str
    uid: int
    name: str
    state: str
    ended: float
    started: float | None = None
    submitted: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    method: str | None = None
    log: str | None = None
    gpus: tuple[HeldGpu, ...] = ()
    cpus: int | None = None  # that it had
    cpu_s: float | None = None  # that its programs took
    memory_mib: int | None = None  # that it had
    peak_memory_mib: int | None = None

    @property
    def key(self) -> tuple[int, int, float]:
        return self.own, self.run, self.ended

    @property
    def seconds(self) -> float:
        return max(0.0, self.ended - self.started) if self.started is not None else 0.0

    @property
    def mean_cpus(self) -> float | None:
        return round(self.cpu_s / self.seconds, 2) if self.cpu_s and self.seconds else None

    def use_json(self) -> dict[str, Any]:
        """The key `use` of a job in `dshpc job list --json`."""
        energy = [gpu.use.energy_j for gpu in self.gpus if gpu.use and gpu.use.energy_j is not None]
        return {
            "gpu_seconds": round(len(self.gpus) * self.seconds, 1),
            "gpu_used_seconds": used_seconds(self),
            "energy_j": round(sum(energy), 1) if energy else None,
            "cpus": self.cpus,
            "mean_cpus": self.mean_cpus,
            "memory_mib": self.memory_mib,
            "peak_memory_mib": self.peak_memory_mib,
            "gpus": [
                {"uuid": gpu.uuid, **(vars(gpu.use) if gpu.use else vars(GpuUse()))}
                for gpu in self.gpus
            ],
        }


def used_seconds(job: JobUse) -> float | None:
    """The GPUs' mean use times the time that was measured; None where nothing was."""
    parts = [
        gpu.use.mean_percent / 100 * gpu.use.measured_s
        for gpu in job.gpus
        if gpu.use is not None and gpu.use.mean_percent is not None
    ]
    return round(sum(parts), 1) if parts else None


def to_line(job: JobUse) -> str:
    """Without what is not known; never a line break within."""
    return json.dumps(_known(vars_of(job)), separators=(",", ":")) + "\n"


def vars_of(job: JobUse) -> dict[str, Any]:
    gpus = [{**vars(gpu), "use": vars(gpu.use) if gpu.use else None} for gpu in job.gpus]
    return {**vars(job), "gpus": gpus}


def _known(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _known(each) for key, each in value.items() if each is not None and each != []}
    return [_known(each) for each in value] if isinstance(value, list) else value


def of_line(line: str | bytes) -> JobUse | None:
    """None for a line that is cut off, or none of ours."""
    try:
        return codec.from_json(JobUse, foreign.value(line))
    except ValueError:
        return None


def with_node(job: JobUse, node: str) -> JobUse:
    """With the node's name where none is said."""
    return replace(job, gpus=tuple(replace(gpu, node=gpu.node or node) for gpu in job.gpus))
