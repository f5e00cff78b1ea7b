"""What the GPUs measured while the dashboard ran: the last hour as it was sampled, the last week in means."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

from dshpc_setup.cluster.gpus import Card

HOUR_S, WEEK_S = 3600.0, 7 * 86400.0
_MEAN_S = 300.0
_MOST_SAMPLES = int(HOUR_S / 1.5) + 1
_MOST_GPUS = 64


class Sample(NamedTuple):
    """None is "not known"; `jobs` are the ids of those that held it."""

    at: float
    utilization_percent: float | None
    memory_used_mib: float | None
    temperature_c: float | None
    power_w: float | None
    jobs: tuple[str, ...] = ()


@dataclass
class _OfGpu:
    hour: deque[Sample] = field(default_factory=lambda: deque(maxlen=_MOST_SAMPLES))
    week: deque[Sample] = field(default_factory=lambda: deque(maxlen=int(WEEK_S / _MEAN_S)))
    began: float | None = None  # of the samples that are not in a mean yet


class History:
    """By the GPU's key: its UUID, else its index."""

    def __init__(self) -> None:
        self._gpus: dict[str, _OfGpu] = {}

    def add(self, at: float, cards: Sequence[Card]) -> None:
        for card in cards[:_MOST_GPUS]:
            kept = self._gpus.setdefault(key(card), _OfGpu())
            reading = card.reading
            kept.hour.append(
                Sample(
                    at,
                    reading.utilization_percent,
                    reading.memory_used_mib,
                    reading.temperature_c,
                    reading.power_w,
                    tuple(job.job_id for job in card.jobs or ()),
                )
            )
            while kept.hour and kept.hour[0].at < at - HOUR_S:
                kept.hour.popleft()
            if kept.began is None:
                kept.began = at
            elif at - kept.began >= _MEAN_S:
                part = [each for each in kept.hour if each.at >= kept.began]
                kept.week.append(_mean(part, at))
                kept.began = at

    def hour(self, gpu: str) -> tuple[Sample, ...]:
        return tuple(self._gpus[gpu].hour) if gpu in self._gpus else ()

    def of_job(self, job: str) -> dict[str, tuple[Sample, ...]]:
        """GPU -> the samples of the last hour in which the job held it."""
        found = {
            gpu: tuple(each for each in kept.hour if job in each.jobs)
            for gpu, kept in list(self._gpus.items())
        }
        return {gpu: samples for gpu, samples in found.items() if samples}

    def week(self, gpu: str) -> tuple[Sample, ...]:
        """A mean of each five minutes."""
        return tuple(self._gpus[gpu].week) if gpu in self._gpus else ()


def key(card: Card) -> str:
    return card.device.uuid or str(card.device.index)


def _mean(part: Sequence[Sample], at: float) -> Sample:
    def of(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    jobs = tuple(dict.fromkeys(job for each in part for job in each.jobs))
    return Sample(
        at,
        of([each.utilization_percent for each in part]),
        of([each.memory_used_mib for each in part]),
        of([each.temperature_c for each in part]),
        of([each.power_w for each in part]),
        jobs,
    )
