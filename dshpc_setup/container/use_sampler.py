"""The service `use`: watches what jobs do with their GPUs, and writes down what each has used as it ends.

It is root's, and no job can stop it or read what it writes of others (docs/decisions/0047-use-of-gpus.md). A
GPU's driver is asked in a process of its own, with a deadline: one that hangs costs that sample.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from dshpc_setup.container import use_processes
from dshpc_setup.container.use_ended import EndedUse
from dshpc_setup.container.use_idle import end_idle
from dshpc_setup.container.use_jobs import (
    ASK_S,
    COLUMNS,
    MOST_IDS,
    WatchedJobs,
    is_proof,
    of_workspace,
)
from dshpc_setup.jobs import allocated_gpus
from dshpc_setup.probes import readings
from dshpc_setup.probes.readings import PartReading, Reading, Watch
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.usage import ledger, live, runs
from dshpc_setup.usage.live import Gauge, LiveJob
from dshpc_setup.usage.records import HeldGpu
from dshpc_setup.usage.runs import Run

SAMPLE_S = 15.0
_ENDED_S = 5.0  # so long after the last look at most the log of ended jobs is read again
_HOUSE_S = 3600.0
_LOST_S = 600.0  # a run of which slurmctld knows nothing is taken for ended after so long
_HOLDING = "RUNNING,SUSPENDED,STOPPED,COMPLETING"


@dataclass
class Sampler(WatchedJobs):
    """One thread: `pass_once` is called about once a second."""

    _sampled: float = float("-inf")
    _looked: float = float("-inf")
    _housed: float = float("-inf")
    _watch: Watch | None = None
    _checked: set[tuple[int, int]] = field(default_factory=set)
    _unnamed: set[tuple[int, int]] = field(default_factory=set)  # to be asked after again

    def __post_init__(self) -> None:
        self._ended = EndedUse(self)

    def begin(self) -> None:
        """What an earlier sampler has left."""
        ledger.make_folders(self.folder)
        noted = runs.names(self.folder)  # of another one the end was written down already
        self.jobs = {job.key: job for job in live.load(self.folder) if job.key in noted}

    def pass_once(self, clock: float, now: float) -> None:
        """What is due; `clock` only ever grows, `now` is seconds since 1970."""
        # First: what is measured now is no more of a job that has ended
        if clock - self._looked >= _ENDED_S and self._ended.has_more():
            self._looked = clock
            self._ended.take(now)
        if clock - self._sampled >= SAMPLE_S:
            step_s = min(clock - self._sampled, 2 * SAMPLE_S)
            self._sampled = clock
            self._sample(step_s, now)
        if clock - self._housed >= _HOUSE_S:
            self._housed = clock
            ledger.fold(now, self.folder)

    def _sample(self, step_s: float, now: float) -> None:
        self.places = replace(self.places)  # another node may have other GPUs by now
        noted = runs.names(self.folder)
        for key in noted - self.jobs.keys():
            run = runs.read(*key, self.folder)
            if run is not None and run.began is not None:  # else Slurm's plugin found the disk full
                self.jobs[key] = self.new_job(run)
        self._ask_slurm(now)
        if not any(job.gpus for job in self.jobs.values()):
            self.close()
        if not (self.jobs or noted):
            if self.has_live:
                self.save(now)
            return
        if self.jobs:
            self._measure(step_s, now)
            end_idle(self, now)
        self.save(now)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _ask_slurm(self, now: float) -> None:
        """Names for those that run, allocations without a step, and runs of which nothing is left."""
        told = Slurm(self.machine).rows(COLUMNS, _HOLDING, deadline_s=ASK_S).value
        if told is None:
            return
        known = {(job.own, job.restarts): job for job in told}
        for key, job in list(self.jobs.items()):
            found = known.get(key)
            if found is not None:
                new = job if job.id is not None else _named(job, found)
                held = job.gpus if job.gpus or job.seen else self.held_here(found)
                self.jobs[key] = replace(new, gpus=held, seen=now)
            elif now - max(job.seen or 0.0, job.began) > _LOST_S:
                self._ended.give_up(job, now)
        # Of what a batch script has, its step tells all; a step of salloc's may have less than the job
        silent = [job for key, job in known.items()
                  if key not in self._checked and not is_proof(job)
                  and (self.is_elsewhere(job) or not (job.batch and key in self.jobs))]  # fmt: skip
        silent.sort(key=lambda job: (job.own, job.restarts) in self._unnamed)
        self._checked &= known.keys()
        self._unnamed &= known.keys()
        for full in self._in_full(silent):
            key = (full.own, full.restarts)
            gpus = self._note(full, now)
            # Another node's offer comes here some time after its first job
            is_unnamed = any(gpu.index is None and gpu.node != self.node for gpu in gpus)
            (self._unnamed if is_unnamed else self._checked).add(key)

    def _note(self, job: SlurmJob, now: float) -> tuple[HeldGpu, ...]:
        """What Slurm says that a job holds, beside what its steps have; which GPUs these are."""
        is_elsewhere = self.is_elsewhere(job)
        places = allocated_gpus.parse_held(job.gres)
        gpus = self.held_by(job) if is_elsewhere else ()
        if not (gpus or places):
            return ()
        uuids = () if is_elsewhere else self.uuids_of(places)
        run = Run(job.own, job.restarts, job.uid, job.started or now, now, places, uuids)
        key = (run.own, run.run)
        if key not in self._unnamed:
            with contextlib.suppress(OSError):  # a full disk: it is known here as long as we run
                runs.note_allocation(run, self.folder)
        noted = runs.read(*key, self.folder)
        all_of_it = noted if noted is not None and noted.began is not None else run
        gpus = gpus or self.held(all_of_it)
        before = self.jobs.get(key) or self.new_job(all_of_it)
        self.jobs[key] = replace(_named(before, job), gpus=gpus, seen=now)
        return gpus

    def _in_full(self, jobs: Sequence[SlurmJob]) -> Iterable[SlurmJob]:
        if not jobs:
            return ()
        numbers = [job.own for job in jobs[:MOST_IDS]]
        return Slurm(self.machine).jobs(*numbers, deadline_s=ASK_S).value or ()

    def _measure(self, step_s: float, now: float) -> None:
        held = {live.key_of(gpu) for job in self.jobs.values() for gpu in job.gpus}
        measured = self._readings() if held and not self.gpus.simulated else {}
        taken = use_processes.by_job() if self.jobs else {}
        for key, job in self.jobs.items():
            since = now - max(job.began, job.sampled or 0.0)
            step = step_s if since < 0 else min(step_s, since)  # the clock was set back
            gauges = dict(job.gauges)
            for gpu in job.gpus:
                name = live.key_of(gpu)
                if gpu.node != self.node:
                    continue  # whose driver is that node's
                if (reading := measured.get(name)) is not None:
                    gauges[name] = gauges.get(name, Gauge()).with_reading(reading, step, now)
            memory = max(job.peak_memory_mib or 0, taken.get(job.own, 0)) or None
            self.jobs[key] = replace(job, gauges=gauges, sampled=now, peak_memory_mib=memory)

    def _readings(self) -> dict[str, Reading | PartReading]:
        """By a process that keeps the driver's library open while a job has GPUs, and no longer: a card can
        be reset, or cut anew, only where nobody has it open."""
        if self._watch is None:
            self._watch = readings.watch(self.machine, self.gpus)
        found = self._watch.now(ASK_S)
        told: dict[str, Reading | PartReading] = {}
        for device in self.gpus.devices:
            if (reading := found.get(device.index)) is None:
                continue
            told[device.uuid or f"index {device.index}"] = reading
            for place, part in enumerate(device.mig):
                if part.uuid:
                    told[part.uuid] = reading.part(part.uuid, place)
        return told


def _named(job: LiveJob, found: SlurmJob) -> LiveJob:
    method, own_log = of_workspace(found)
    log = own_log or (job_states.log_of(found) if found.batch else None)
    return replace(job, id=found.id, user=found.user, name=found.name, log=log, method=method)
