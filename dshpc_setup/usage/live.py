"""Jobs that run: what was measured of them so far, kept in a file that outlives who measures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.files.storage import replace_text
from dshpc_setup.probes.readings.values import PartReading, Reading
from dshpc_setup.usage.ledger import FOLDER, give
from dshpc_setup.usage.records import GpuUse, HeldGpu

SCHEMA = "dshpc.live-use/1"


def key_of(gpu: HeldGpu) -> str:
    return gpu.uuid or f"index {gpu.index}"


@dataclass(frozen=True)
class Gauge:
    """Sums over time: a value times the seconds that it stood for."""

    percent_s: float = 0.0
    percent_time_s: float = 0.0
    peak_percent: int | None = None
    memory_mib_s: float = 0.0
    memory_time_s: float = 0.0
    peak_memory_mib: int | None = None
    energy_j: float | None = None
    last_used: float | None = None

    def with_reading(self, reading: Reading | PartReading, step_s: float, now: float) -> Gauge:
        """The reading stands for the time since the one before."""
        percent = reading.utilization_percent if isinstance(reading, Reading) else None
        power = reading.power_w if isinstance(reading, Reading) else None
        memory, new = reading.memory_used_mib, self
        if percent is not None:
            new = replace(
                new,
                percent_s=new.percent_s + percent * step_s,
                percent_time_s=new.percent_time_s + step_s,
                peak_percent=max(new.peak_percent or 0, percent),
                last_used=now if percent > 0 else new.last_used,
            )
        if memory is not None:
            new = replace(
                new,
                memory_mib_s=new.memory_mib_s + memory * step_s,
                memory_time_s=new.memory_time_s + step_s,
                peak_memory_mib=max(new.peak_memory_mib or 0, memory),
            )
        if power is not None:
            new = replace(new, energy_j=(new.energy_j or 0.0) + power * step_s)
        return new

    def use(self) -> GpuUse:
        return GpuUse(
            measured_s=round(max(self.percent_time_s, self.memory_time_s), 1),
            mean_percent=_mean(self.percent_s, self.percent_time_s, self.peak_percent),
            peak_percent=self.peak_percent,
            mean_memory_mib=None
            if (mean := _mean(self.memory_mib_s, self.memory_time_s, self.peak_memory_mib)) is None
            else round(mean),
            peak_memory_mib=self.peak_memory_mib,
            energy_j=None if self.energy_j is None else round(self.energy_j, 1),
            last_used=self.last_used,
        )


def _mean(total: float, time_s: float, peak: int | None) -> float | None:
    if peak is None:
        return None
    return round(total / time_s, 1) if time_s > 0 else float(peak)


@dataclass(frozen=True)
class LiveJob:
    """`seen` is when slurmctld last named it; `id`, `user` and `name` are None until it did."""

    own: int
    run: int
    uid: int
    began: float
    gpus: tuple[HeldGpu, ...] = ()
    gauges: Mapping[str, Gauge] = field(default_factory=dict)
    id: str | None = None
    user: str | None = None
    name: str | None = None
    log: str | None = None
    method: str | None = None
    seen: float | None = None
    sampled: float | None = None
    warned: float | None = None
    peak_memory_mib: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        return self.own, self.run

    def idle_s(self, gpu: HeldGpu, now: float) -> float | None:
        """Since its last use, or since it is held; None where its driver tells no use."""
        gauge = self.gauges.get(key_of(gpu))
        if gauge is None or gauge.peak_percent is None:
            return None
        return max(0.0, now - max(gauge.last_used or 0.0, self.began))

    def all_idle_s(self, now: float) -> float | None:
        """The least of its GPUs; None where one of them is not known, or it has none."""
        found = [self.idle_s(gpu, now) for gpu in self.gpus]
        known = [each for each in found if each is not None]
        return min(known) if known and len(known) == len(found) else None


@dataclass(frozen=True)
class Kept:
    jobs: tuple[LiveJob, ...] = ()
    at: float = 0.0
    idle_gpu_s: float = 0.0  # 0: never named

    def idle(self) -> list[tuple[LiveJob, HeldGpu, float]]:
        """GPUs that are held and were not used for longer than the setting says."""
        found = [(job, gpu, job.idle_s(gpu, self.at)) for job in self.jobs for gpu in job.gpus]
        return [
            (job, gpu, idle_s)
            for job, gpu, idle_s in found
            if idle_s is not None and 0 < self.idle_gpu_s <= idle_s
        ]


def told_time(seconds: float) -> str:
    """ "45 min", "2 h 5 min"."""
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h" + (f" {rest} min" if rest else "")


def save(jobs: Iterable[LiveJob], now: float, idle_gpu_s: float, folder: str = FOLDER) -> None:
    """All for root, and each user's own for that user. Not synced: a power cut ends the jobs, too."""
    kept = Kept(tuple(jobs), now, idle_gpu_s)
    replace_text(f"{folder}/live.json", _text(kept), 0o600, sync=False)
    users = {job.uid for job in kept.jobs}
    there = {int(name[: -len(".live.json")]) for name in os.listdir(f"{folder}/of")
             if name.endswith(".live.json") and name[: -len(".live.json")].isdecimal()}  # fmt: skip
    for uid in users | there:
        path = f"{folder}/of/{uid}.live.json"
        if uid not in users:
            os.unlink(path)
            continue
        own = replace(kept, jobs=tuple(job for job in kept.jobs if job.uid == uid))
        replace_text(path, _text(own), 0o400, sync=False)
        give(path, uid)


def _text(kept: Kept) -> str:
    return json.dumps({"schema": SCHEMA, **asdict(kept)}) + "\n"


def parse(text: str) -> Kept:
    """Raises ValueError."""
    return codec.from_json(Kept, foreign.value(text), SCHEMA)


def read(uid: int | None = None, folder: str = FOLDER) -> Kept:
    """What is kept of all (root), or of one user; nothing where it cannot be read."""
    path = f"{folder}/live.json" if uid is None else f"{folder}/of/{uid}.live.json"
    try:
        with open(path, encoding="utf-8") as file:
            return parse(file.read())
    except (OSError, ValueError):
        return Kept()


def load(folder: str = FOLDER) -> tuple[LiveJob, ...]:
    return read(None, folder).jobs


def save_place(folder: str, offset: int, last: bytes, late: Iterable[str] = ()) -> None:
    """How far the log of ended jobs was read, and its lines of jobs that are not taken yet."""
    value = {"offset": offset, "last": last.decode("latin-1"), "late": list(late)}
    replace_text(f"{folder}/place.json", json.dumps(value), 0o600, sync=False)


def load_place(folder: str) -> tuple[int, bytes, list[str]]:
    try:
        with open(f"{folder}/place.json", encoding="utf-8") as file:
            found = foreign.of_file(file)
        late = [str(line) for line in found.get("late", ())]
        return int(found["offset"]), str(found["last"]).encode("latin-1"), late
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return 0, b"", []
