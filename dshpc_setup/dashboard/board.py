"""One sampling for all who look: what was seen last, and when. No page waits for a driver or an engine.

Each section is asked by a thread of its own, so that one that hangs keeps no other. What changes with jobs is
asked when they do: the container tells it within a second or two, for a small part of what asking costs.
While nobody looks they rest, but for a look now and then, of which the curves are made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from dshpc_setup.cluster.gpu_jobs import ClusterGpus
from dshpc_setup.cluster.gpus import GpusNow, made_up_by
from dshpc_setup.dashboard.history import History
from dshpc_setup.dashboard.source import Jobs, Source, Told
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import DshpcError, Exit, words_of
from dshpc_setup.observed.cluster_status import ClusterStatus

_T = TypeVar("_T")

LOOKED_S = 15.0  # somebody looks as long as the last page or live line is not older
_IDLE_S = 30.0
_LIVE_S, _SELDOM_S, _DOCTOR_S = 1.5, 60.0, 600.0
_REST_S = 10.0  # of what is asked only when a page wants it
_AWAY_S = 2.0  # before it is tried again
_SHARE = 4  # as long as it took to ask, so many times it rests

_NOT_UP = DshpcError("The cluster does not run.", "", ("Start it: dshpc up",))


@dataclass(frozen=True)
class Seen(Generic[_T]):
    """The last answer, and why there is none, or no newer one. Seconds since 1970; 0: not asked yet.

    `version` is another one where it differs from the answer before.
    """

    value: _T | None = None
    error: DshpcError | None = None
    at: float = 0.0
    version: int = 0


@dataclass(frozen=True)
class Snapshot:
    status: Seen[ClusterStatus] = field(default_factory=Seen)
    gpus: Seen[GpusNow] = field(default_factory=Seen)
    jobs: Seen[Jobs] = field(default_factory=Seen)
    doctor: Seen[Report] = field(default_factory=Seen)
    others: Seen[tuple[GpusNow, ...]] = field(default_factory=Seen)  # GPUs of the other nodes

    @property
    def stamp(self) -> tuple[int, ...]:
        """Another one as soon as anything is."""
        seen = (self.status, self.gpus, self.jobs, self.doctor, self.others)
        return tuple(each.version for each in seen)

    @property
    def is_up(self) -> bool:
        """Whether Slurm can be asked; while that is not known, it is tried."""
        now = self.status
        if now.value is None:
            return now.error is None
        return now.error is None and now.value.phase == "ready" and now.value.state == "running"


class Board:
    def __init__(self, source: Source, clock: Callable[[], float] = time.time) -> None:
        self.source, self.time = source, clock
        self._looked = 0.0
        self._ended = threading.Event()
        self._hardware: Iterator[GpusNow] | None = None
        self.history = History()
        self.status = Section(source.status, _SELDOM_S, _SELDOM_S)
        self.cluster = Section(self._holders, _SELDOM_S, _SELDOM_S)
        self.others = Section(self._other_gpus, _SELDOM_S, None)
        self.gpus = Section(self._look, _LIVE_S, _IDLE_S)
        self.jobs = _JobsSection(self._jobs, _LIVE_S, _SELDOM_S)
        self.doctor = Section(source.doctor, _DOCTOR_S, None)
        # Asked when a page wants them, and at no other time
        self.usage = Section(source.usage, None, None)
        self.workflows = Section(source.workflows, None, None)
        self.fixes = Section(source.fixes, None, None)

    def start(self) -> None:
        for section in self._first:
            section.now.set()
        for section in self.sections:
            threading.Thread(target=section.run, args=(self,), daemon=True).start()

    def wait_first(self, seconds: float) -> None:
        """Until those of the first page have answered once, for no longer than that."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not all(section.seen.at for section in self._first):
            time.sleep(0.02)

    def stop(self) -> None:
        self._ended.set()
        for section in self.sections:
            section.now.set()
        self.jobs.rested.wait(_AWAY_S)  # else the engine's client would outlive us

    @property
    def sections(self) -> tuple[Section[Any], ...]:
        return *self._first, self.others, self.doctor, self.usage, self.workflows, self.fixes

    @property
    def _first(self) -> tuple[Section[Any], ...]:
        """Without doctor, who costs most, and whom the first page need not wait for."""
        return self.status, self.cluster, self.gpus, self.jobs

    def fresh(self, section: Section[_T], age_s: float = 30.0, wait_s: float = 1.0) -> Seen[_T]:
        """What is known of it; where that is older, it is asked again and waited for, but not for long."""
        self.look()
        before = section.seen.at
        if self.time() - before > age_s:
            section.now.set()
            until = time.monotonic() + wait_s
            while section.seen.at == before and time.monotonic() < until and not self.is_over:
                time.sleep(0.02)
        return section.seen

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    @property
    def is_watched(self) -> bool:
        return self.time() - self._looked < LOOKED_S

    def look(self) -> Snapshot:
        """What is known now; that somebody looks is noted."""
        rested = not self.is_watched
        self._looked = self.time()
        if rested:
            for section in (self.status, self.cluster, self.others, self.gpus, self.jobs):
                section.now.set()
        return self.snapshot

    @property
    def snapshot(self) -> Snapshot:
        seen = (self.status.seen, self.gpus.seen, self.jobs.seen, self.doctor.seen)
        return Snapshot(*seen, self.others.seen)

    def changed(self) -> None:
        """Jobs began, ended or came: what is free, and who holds it, is other than before."""
        for section in (self.status, self.cluster, self.others):
            section.now.set()

    def _holders(self) -> ClusterGpus | None:
        return self.source.holders(self.cluster.seen.value)

    def _other_gpus(self) -> tuple[GpusNow, ...]:
        """Without the moment at which each was asked, by which all answers would differ."""
        found = self.source.other_gpus(self.others.seen.value or ())
        return tuple(replace(each, taken=0.0, cluster_ms=0.0) for each in found)

    def _look(self) -> GpusNow:
        held = self.cluster.seen
        now = made_up_by(held.value, held.at) or self._measured(held.value)
        self.history.add(self.time(), now.cards())
        return now

    def _measured(self, held: ClusterGpus | None) -> GpusNow:
        if self._hardware is None:
            self._hardware = self.source.hardware()
        try:
            return replace(next(self._hardware), cluster=held)
        except BaseException:
            self._hardware = None  # a generator that raised is over
            raise

    def _jobs(self) -> Jobs:
        if not self.snapshot.is_up:
            raise replace(_NOT_UP)  # one that is raised again and again keeps all of its traces
        return self.source.jobs()


class Section(Generic[_T]):
    """What is asked again and again: every `live_s` while somebody looks, every `idle_s` else. None: only
    when it is asked for."""

    def __init__(self, ask: Callable[[], _T], live_s: float | None, idle_s: float | None) -> None:
        self._ask, self._live_s, self._idle_s = ask, live_s, idle_s
        self._last, self._took = -1e9, 0.0
        self.seen: Seen[_T] = Seen()
        self.now = threading.Event()  # ask at once

    def forget(self) -> None:
        """What is known is of before."""
        self.seen = Seen(version=self.seen.version + 1)

    def ask_again(self) -> None:
        """What is known is forgotten: the page shows that it is asked."""
        self.forget()
        self.now.set()

    def ask(self, clock: Callable[[], float]) -> None:
        try:
            self.put(self._ask(), None, clock())
        except DshpcError as error:
            self.put(self.seen.value, error, clock())
        except Exception as error:  # noqa: BLE001 -- a defect of one section leaves the others
            told = DshpcError("A defect of dsHPC setup itself.", words_of(error))
            self.put(self.seen.value, told, clock())

    def put(self, value: _T | None, error: DshpcError | None, at: float) -> None:
        before = self.seen
        same = before.at > 0 and (before.value, before.error) == (value, error)
        self.seen = Seen(value, error, at, before.version + (not same))

    def run(self, board: Board) -> None:
        while not board.is_over:
            self.step(board)

    def step(self, board: Board) -> None:
        """Ask if it is time to, else wait for a moment."""
        seldom = self.seen.error is None
        pause = self._live_s if board.is_watched else self._idle_s
        if not seldom and board.is_watched and pause is not None:  # until it is well again
            pause = min(pause, _AWAY_S)
        began = time.monotonic()
        is_due = pause is not None and began - self._last >= pause
        if (is_due or self.now.is_set()) and began - self._last >= _SHARE * self._took:
            self.now.clear()
            self.ask(board.time)
            self._last, self._took = began, time.monotonic() - began
        elif self.now.is_set():  # asked a moment ago
            time.sleep(0.1)
        else:
            self.now.wait(0.5 if self._live_s is not None else _REST_S)


class _JobsSection(Section[Jobs]):
    """While somebody looks at a cluster that is up, the container itself says when its jobs are others."""

    def __init__(self, ask: Callable[[], Jobs], live_s: float, idle_s: float) -> None:
        super().__init__(ask, live_s, idle_s)
        self._is_told = True  # an older image has no such command: it is asked
        self.rested = threading.Event()
        self.rested.set()

    def step(self, board: Board) -> None:
        if not (self._is_told and board.is_watched and board.snapshot.is_up):
            super().step(board)
            return

        def heard(told: Told) -> None:
            if isinstance(told, Jobs):
                version = self.seen.version
                self.put(told, None, board.time())
                told = version != self.seen.version
            if told:
                board.changed()
            if board.is_over or not board.is_watched:
                raise _RestError

        self.rested.clear()
        if self.seen.error == _NOT_UP:
            self.put(self.seen.value, None, board.time())
        try:
            board.source.watch_jobs(heard)
        except _RestError:
            pass
        except DshpcError as error:
            self._is_told = error.exit_code != Exit.USAGE
            if self._is_told:
                self.put(self.seen.value, error, board.time())
                board.status.now.set()
                self.now.clear()
                self.now.wait(_AWAY_S)
        finally:
            self.rested.set()


class _RestError(Exception):
    """Nobody looks any more."""
