"""One sampling for all who look: what was seen last, and when. No page waits for a driver or an engine.

Each section is asked by a thread of its own, so that one that hangs keeps no other. While nobody looks they
rest, but for a look now and then, of which the curves are made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.dashboard.history import History
from dshpc_setup.dashboard.source import Jobs, Source
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import DshpcError
from dshpc_setup.observed.cluster_status import ClusterStatus

_T = TypeVar("_T")

LOOKED_S = 15.0  # somebody looks as long as the last page or live line is not older
_IDLE_S = 30.0
_LIVE_S, _STATUS_S, _DOCTOR_S = 1.5, 3.0, 300.0


@dataclass(frozen=True)
class Seen(Generic[_T]):
    """The last answer, and why there is none, or no newer one. Seconds since 1970; 0: not asked yet."""

    value: _T | None = None
    error: DshpcError | None = None
    at: float = 0.0


@dataclass(frozen=True)
class Snapshot:
    status: Seen[ClusterStatus] = field(default_factory=Seen)
    gpus: Seen[GpusNow] = field(default_factory=Seen)
    jobs: Seen[Jobs] = field(default_factory=Seen)
    doctor: Seen[Report] = field(default_factory=Seen)

    @property
    def stamp(self) -> tuple[float, ...]:
        """Another one as soon as anything was asked again."""
        return self.status.at, self.gpus.at, self.jobs.at, self.doctor.at

    @property
    def is_up(self) -> bool:
        """Whether Slurm can be asked; while that is not known, it is tried."""
        now = self.status
        if now.value is None:
            return now.error is None
        return now.error is None and now.value.phase == "ready" and now.value.state == "running"


class Board:
    def __init__(self, source: Source, clock: Callable[[], float] = time.time) -> None:
        self._source, self._clock = source, clock
        self._looked = 0.0
        self._ended = threading.Event()
        self._gpus: Iterator[GpusNow] | None = None
        self.history = History()
        self.status = _Section(self._status, _STATUS_S, _IDLE_S * 2)
        self.gpus = _Section(self._look, _LIVE_S, _IDLE_S)
        self.jobs = _Section(self._jobs, _LIVE_S, _IDLE_S * 2)
        self.doctor = _Section(source.doctor, _DOCTOR_S, None)

    def start(self) -> None:
        for section in self._sections:
            section.now.set()
            threading.Thread(target=section.run, args=(self,), daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        for section in self._sections:
            section.now.set()

    @property
    def _sections(self) -> tuple[_Section[Any], ...]:
        return self.status, self.gpus, self.jobs, self.doctor

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    @property
    def is_watched(self) -> bool:
        return self._clock() - self._looked < LOOKED_S

    def look(self) -> Snapshot:
        """What is known now; that somebody looks is noted."""
        rested = not self.is_watched
        self._looked = self._clock()
        if rested:
            for section in self._sections:
                section.now.set()
        return self.snapshot

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.status.seen, self.gpus.seen, self.jobs.seen, self.doctor.seen)

    def time(self) -> float:
        return self._clock()

    def _status(self) -> ClusterStatus:
        return self._source.status()

    def _look(self) -> GpusNow:
        if self._gpus is None:
            self._gpus = self._source.gpus()
        try:
            now = next(self._gpus)
        except BaseException:
            self._gpus = None  # a generator that raised is over
            raise
        self.history.add(self._clock(), now.cards())
        return now

    def _jobs(self) -> Jobs:
        if not self.snapshot.is_up:
            raise DshpcError("The cluster does not run.", "", ("Start it: dshpc up",))
        return self._source.jobs()


class _Section(Generic[_T]):
    """What is asked again and again: every `live_s` while somebody looks, every `idle_s` else (None: not)."""

    def __init__(self, ask: Callable[[], _T], live_s: float, idle_s: float | None) -> None:
        self._ask, self._live_s, self._idle_s = ask, live_s, idle_s
        self.seen: Seen[_T] = Seen()
        self.now = threading.Event()  # ask at once

    def ask_again(self) -> None:
        """What is known is forgotten: the page shows that it is asked."""
        self.seen = Seen()
        self.now.set()

    def ask(self, clock: Callable[[], float]) -> None:
        try:
            self.seen = Seen(self._ask(), None, clock())
        except DshpcError as error:
            self.seen = Seen(self.seen.value, error, clock())
        except Exception as error:  # noqa: BLE001 -- a defect of one section leaves the others
            told = DshpcError("A defect of dsHPC setup itself.", f"{type(error).__name__}: {error}")
            self.seen = Seen(self.seen.value, told, clock())

    def run(self, board: Board) -> None:
        last = -1e9
        while not board.is_over:
            pause = self._live_s if board.is_watched else self._idle_s
            began = time.monotonic()
            if self.now.is_set() or (pause is not None and began - last >= pause):
                self.now.clear()
                self.ask(board.time)
                last = began
            self.now.wait(
                0.25 if pause is None else max(0.05, min(0.5, last + pause - time.monotonic()))
            )
