"""The service `use`: watches what jobs do with their GPUs, and writes down what each has used as it ends.

It is root's, and no job can stop it or read what it writes of others (docs/decisions/0047-use-of-gpus.md). A
GPU's driver is asked in a process of its own, with a deadline: one that hangs costs that sample.
"""

from __future__ import annotations

import contextlib
import pwd
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dshpc_setup.container import use_processes
from dshpc_setup.container.jobs import PROOF
from dshpc_setup.container.use_log import EndedJobs
from dshpc_setup.facts import Gpus
from dshpc_setup.jobs import allocated_gpus, records
from dshpc_setup.machine import Machine
from dshpc_setup.probes import readings
from dshpc_setup.probes.readings import PartReading, Reading, Watch
from dshpc_setup.settings import Settings, texts
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.completion_log import Ended
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.slurm.pending import parse_tres
from dshpc_setup.usage import ledger, live, runs
from dshpc_setup.usage.live import Gauge, LiveJob
from dshpc_setup.usage.records import HeldGpu, JobUse
from dshpc_setup.usage.runs import Run

SAMPLE_S = 15.0
_ENDED_S = 5.0  # so long after the last look at most the log of ended jobs is read again
_ASK_S = 10.0
_HOUSE_S = 3600.0
_LOST_S = 600.0  # a run of which slurmctld knows nothing is taken for ended after so long
_LATE_S = 300.0  # MinJobAge: so long slurmctld knows what a job had that has ended
_HOLDING = "RUNNING,SUSPENDED,STOPPED,COMPLETING"
_COLUMNS = (
    "JobID JobArrayID ArrayJobID ArrayTaskID RestartCnt UserID UserName BatchFlag NodeList STDOUT "
    "WorkDir Name"
)
_MOST_IDS = 200
_WARN_BEFORE_S = 600.0


@dataclass
class Sampler:
    """`folder` is the ledger's. One thread: `pass_once` is called about once a second."""

    machine: Machine
    settings: Settings
    node: str
    gpus: Gpus
    places: allocated_gpus.Places
    folder: str = ledger.FOLDER
    log: str | None = None  # of ended jobs; None where the user has it kept otherwise
    jobs: dict[tuple[int, int], LiveJob] = field(default_factory=dict)
    _sampled: float = float("-inf")
    _looked: float = float("-inf")
    _housed: float = float("-inf")
    _has_live: bool = True
    _watch: Watch | None = None
    _checked: set[tuple[int, int]] = field(default_factory=set)
    _unnamed: set[tuple[int, int]] = field(default_factory=set)  # to be asked after again
    # What slurmctld said of jobs that have ended, until it is written down: it forgets them
    _had: dict[Ended, tuple[HeldGpu, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ended = EndedJobs(self.log, self.folder)

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
            self._take_ended(now)
        if clock - self._sampled >= SAMPLE_S:
            step_s = min(clock - self._sampled, 2 * SAMPLE_S)
            self._sampled = clock
            self._sample(step_s, now)
        if clock - self._housed >= _HOUSE_S:
            self._housed = clock
            ledger.fold(now, self.folder)

    # What runs

    def _sample(self, step_s: float, now: float) -> None:
        self.places = replace(self.places)  # another node may have other GPUs by now
        noted = runs.names(self.folder)
        for key in noted - self.jobs.keys():
            run = runs.read(*key, self.folder)
            if run is not None and run.began is not None:  # else Slurm's plugin found the disk full
                self.jobs[key] = self._live(run)
        self._ask_slurm(now)
        if not any(job.gpus for job in self.jobs.values()):
            self.close()
        if not (self.jobs or noted):
            if self._has_live:
                self._save_live(now)
            return
        if self.jobs:
            self._measure(step_s, now)
            self._end_idle(now)
        self._save_live(now)

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _save_live(self, now: float) -> None:
        live.save(self.jobs.values(), now, texts.age_s(self.settings.idle_gpu), self.folder)
        self._has_live = bool(self.jobs)

    def _live(self, run: Run) -> LiveJob:
        """Of several nodes the note of a run does not say on which it is: its GPUs are told with that."""
        held = () if allocated_gpus.has_several_nodes(self.places.nodes) else self._held(run)
        return LiveJob(run.own, run.run, run.uid or 0, run.began or time.time(), held)

    def _held(self, run: Run, node: str | None = None) -> tuple[HeldGpu, ...]:
        """Of a run on one node, by default this one."""
        places = self.places.on(node)
        seen = {"UUIDS": ",".join(run.uuids), "SLURM_JOB_GPUS": ",".join(map(str, run.places))}
        return tuple(
            HeldGpu(gpu.index, gpu.uuid, gpu.type, places.node or self.node)
            for gpu in places.of_variables(seen)
        )

    def _held_here(self, job: SlurmJob) -> tuple[HeldGpu, ...]:
        """By the notes of its steps, of one on this node alone."""
        run = runs.read(job.own, job.restarts, self.folder)
        return () if run is None or self._is_elsewhere(job) else self._held(run)

    def _held_by(self, job: SlurmJob) -> tuple[HeldGpu, ...]:
        """On whichever nodes it runs."""
        return tuple(
            HeldGpu(gpu.index, gpu.uuid, gpu.type, gpu.node or self.node)
            for gpu in self.places.of_job(job.held, job.nodes)
        )

    def _is_elsewhere(self, job: SlurmJob) -> bool:
        """Whether it has another node of the cluster, too: the notes of steps do not say whose places."""
        return bool(set(job.nodes) - {self.node})

    def _ask_slurm(self, now: float) -> None:
        """Names for those that run, allocations without a step, and runs of which nothing is left."""
        told = Slurm(self.machine).rows(_COLUMNS, _HOLDING, deadline_s=_ASK_S).value
        if told is None:
            return
        known = {(job.own, job.restarts): job for job in told}
        for key, job in list(self.jobs.items()):
            found = known.get(key)
            if found is not None:
                new = job if job.id is not None else _named(job, found)
                held = job.gpus if job.gpus or job.seen else self._held_here(found)
                self.jobs[key] = replace(new, gpus=held, seen=now)
            elif now - max(job.seen or 0.0, job.began) > _LOST_S:
                self._give_up(job, now)
        # Of what a batch script has, its step tells all; a step of salloc's may have less than the job
        silent = [job for key, job in known.items()
                  if key not in self._checked and not _is_proof(job)
                  and (self._is_elsewhere(job) or not (job.batch and key in self.jobs))]  # fmt: skip
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
        is_elsewhere = self._is_elsewhere(job)
        places = allocated_gpus.parse_held(job.gres)
        gpus = self._held_by(job) if is_elsewhere else ()
        if not (gpus or places):
            return ()
        uuids = () if is_elsewhere else self._uuids(places)
        run = Run(job.own, job.restarts, job.uid, job.started or now, now, places, uuids)
        key = (run.own, run.run)
        if key not in self._unnamed:
            with contextlib.suppress(OSError):  # a full disk: it is known here as long as we run
                runs.note_allocation(run, self.folder)
        noted = runs.read(*key, self.folder)
        all_of_it = noted if noted is not None and noted.began is not None else run
        gpus = gpus or self._held(all_of_it)
        before = self.jobs.get(key) or self._live(all_of_it)
        self.jobs[key] = replace(_named(before, job), gpus=gpus, seen=now)
        return gpus

    def _in_full(self, jobs: Sequence[SlurmJob]) -> Iterable[SlurmJob]:
        if not jobs:
            return ()
        numbers = [job.own for job in jobs[:_MOST_IDS]]
        return Slurm(self.machine).jobs(*numbers, deadline_s=_ASK_S).value or ()

    def _uuids(self, places: tuple[int, ...]) -> tuple[str, ...]:
        held = self.places.of_gres(f"gpu:(IDX:{','.join(map(str, places))})")
        uuids = tuple(gpu.uuid for gpu in held if gpu.uuid)
        return uuids if len(uuids) == len(places) else ()

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
        found = self._watch.now(_ASK_S)
        told: dict[str, Reading | PartReading] = {}
        for device in self.gpus.devices:
            if (reading := found.get(device.index)) is None:
                continue
            told[device.uuid or f"index {device.index}"] = reading
            for place, part in enumerate(device.mig):
                if part.uuid:
                    told[part.uuid] = reading.part(part.uuid, place)
        return told

    # What is idle

    def _end_idle(self, now: float) -> None:
        after_s = texts.age_s(self.settings.release_idle)
        for key, job in list(self.jobs.items()) if after_s else ():
            idle_s = job.all_idle_s(now)
            if idle_s is None or job.id is None:
                if job.warned is not None and idle_s is None:
                    self.jobs[key] = replace(job, warned=None)
                continue
            warn_s = max(after_s / 2, after_s - _WARN_BEFORE_S)
            if idle_s < warn_s:
                self.jobs[key] = replace(job, warned=None)
            elif job.warned is None:
                text = (
                    f"dshpc: the job's GPUs have not been used for {live.told_time(idle_s)}. If they stay "
                    f"idle, the job is ended in {live.told_time(after_s - warn_s)} (setting release_idle: "
                    f"{self.settings.release_idle})."
                )
                if Slurm(self.machine).notify(str(job.own), text, deadline_s=_ASK_S).ok:
                    self.jobs[key] = replace(job, warned=now)
            elif idle_s >= after_s and now - job.warned >= after_s - warn_s:
                text = f"dshpc: the job is ended: its GPUs have not been used for {live.told_time(idle_s)}."
                Slurm(self.machine).notify(str(job.own), text, deadline_s=_ASK_S)
                Slurm(self.machine).cancel(str(job.own), deadline_s=_ASK_S)
                say(f"job {job.id} is ended: its GPUs have been idle for {live.told_time(idle_s)}")

    # What has ended

    def _take_ended(self, now: float) -> None:
        try:
            ended = self._ended.new_jobs()
        except OSError:
            return
        real = [job for job in ended if not _is_proof(job)]
        gone = self._gone(real, now)
        late = {job for job, held in gone.items() if held is None}
        made = self._uses([job for job in real if job not in late], gone)
        if self._ended.is_first and made:  # an earlier sampler may have come so far
            oldest = min(job.ended for job in made)
            there = {
                each.key for each in ledger.newest_first(None, self.folder) if each.ended >= oldest
            }
            made = [job for job in made if job.key not in there]
        ledger.add(made, self.folder)
        known = self._known_runs()
        for job in ended:
            if job not in late:
                self._forget(job, known)
        self._ended.done(late)
        self._had.clear()
        self._save_live(now)

    def _uses(
        self, ended: Sequence[Ended], gone: Mapping[Ended, tuple[HeldGpu, ...] | None]
    ) -> list[JobUse]:
        known = self._known_runs()
        logs = self._logs(ended, known)
        found: list[JobUse] = []
        for job in ended:
            mine = self._runs_of(job, known)
            for at, run in enumerate(
                mine or [Run(job.own, max(self._watched(job.own), default=0))]
            ):
                is_last = at >= len(mine) - 1
                held = (gone.get(job) or ()) if is_last else ()
                found.append(self._use(job, run, logs.get(job.own), held, is_last=is_last))
        return found

    def _watched(self, own: int) -> list[int]:
        """Runs of a job of which something was measured, where no note of it could be written."""
        return [run for each, run in self.jobs if each == own]

    def _known_runs(self) -> dict[int, list[int]]:
        known: dict[int, list[int]] = {}
        for own, count in runs.names(self.folder):
            known.setdefault(own, []).append(count)
        return known

    def _runs_of(self, job: Ended, known: Mapping[int, list[int]]) -> list[Run]:
        return [run for run in runs.of_job(job.own, known, self.folder)
                if (run.began or 0.0) <= (job.ended or 0.0) + 1]  # fmt: skip

    def _gone(self, ended: Sequence[Ended], now: float) -> dict[Ended, tuple[HeldGpu, ...] | None]:
        """Of runs on other machines, on several nodes or beside a full disk, of whose GPUs neither sample nor
        step has told: what they had; None of one to be asked after again, as slurmctld has not answered."""
        found: dict[Ended, tuple[HeldGpu, ...] | None] = {}
        known, does_answer = self._known_runs(), True
        seen = {job.own for job in self.jobs.values() if job.gpus and job.id is not None}
        has_others = self.settings.listens or self.settings.place.role != "alone"
        for job in ended:
            if (had := self._had.get(job)) is not None:
                found[job] = had
            if (
                job in found
                or job.node is None
                or job.own in seen
                or now - (job.ended or 0.0) > _LATE_S
            ):
                continue
            nodes, mine = parse_tres(job.tres).get("node", 1), self._runs_of(job, known)
            is_noted = all(
                run.began is not None for run in mine
            )  # else the disk was full as it began
            is_here = nodes == 1 and (job.node == self.node or any(run.places for run in mine))
            if is_noted and (is_here or not has_others):
                continue  # of several nodes a step's note does not say whose places they are
            found[job] = held = self._held_there(job, nodes) if does_answer else None
            does_answer = held is not None
            if held is not None:
                self._had[job] = held
        return found

    def _held_there(self, job: Ended, nodes: int) -> tuple[HeldGpu, ...] | None:
        """How many of which kind: the notes of the steps are there, and Slurm forgets at the end which GPUs
        they were. None where it did not answer."""
        told = Slurm(self.machine).gpus_by_kind(job.own, deadline_s=_ASK_S).value
        if told is None:
            return None
        node = job.node if nodes == 1 else None
        return tuple(
            HeldGpu(type=kind.partition(":")[2] or None, node=node)
            for kind, count in told.items()
            for _ in range(count)
        )

    def _use(
        self,
        job: Ended,
        run: Run,
        log: str | None,
        gone: tuple[HeldGpu, ...] = (),
        *,
        is_last: bool,
    ) -> JobUse:
        watched = self.jobs.get((run.own, run.run))
        gpus = gone or (watched.gpus if watched is not None else ()) or self._held(run, job.node)
        gauges: Mapping[str, Gauge] = watched.gauges if watched is not None else {}
        peaks = [run.peak_kib and -(-run.peak_kib // 1024), watched and watched.peak_memory_mib]
        method, own_log = _of_workspace(job)
        tres = parse_tres(job.tres)
        return JobUse(
            id=job.id, own=job.own, run=run.run, user=job.user, uid=job.uid, name=job.name,
            state=job.state if is_last else "REQUEUED",
            ended=(job.ended or 0.0) if is_last else max(run.seen or 0.0, (watched and watched.seen) or 0.0),
            started=job.started if is_last else run.began,
            submitted=job.submitted,
            exit_code=job.exit_code if is_last else None, signal=job.signal if is_last else None,
            method=method, log=own_log or log,
            gpus=tuple(replace(gpu, use=gauges[name].use() if (name := live.key_of(gpu)) in gauges else None)
                       for gpu in gpus),
            cpus=tres.get("cpu"),
            cpu_s=run.cpu_s, memory_mib=tres.get("mem"),
            peak_memory_mib=max((peak for peak in peaks if peak), default=None),
        )  # fmt: skip

    def _logs(self, ended: Sequence[Ended], known: Mapping[int, list[int]]) -> dict[int, str]:
        """Where batch jobs have written that are no submission of ours: slurmctld forgets it."""
        found = {job.own: job.log for job in self.jobs.values() if job.log}
        unknown = [job for job in ended if job.own in known and job.own not in found
                   and f"/jobs/{job.uid}/" not in job.folder]  # fmt: skip
        batch = [job for job in unknown
                 if any(run.is_batch for run in runs.of_job(job.own, known, self.folder))]  # fmt: skip
        for at in range(0, len(batch), _MOST_IDS):
            ids = [str(job.own) for job in batch[at : at + _MOST_IDS]]
            told = Slurm(self.machine).rows(_COLUMNS, "all", ids=ids, deadline_s=_ASK_S).value
            found.update(
                (job.own, job_states.log_of(job)) for job in told or () if job.batch and job.log
            )
        return found

    def _forget(self, ended: Ended, known: Mapping[int, list[int]]) -> None:
        for count in known.get(ended.own, self._watched(ended.own)):
            found = runs.read(ended.own, count, self.folder)
            if found is None or (found.began or 0.0) <= (ended.ended or 0.0) + 1:
                runs.forget(ended.own, count, self.folder)
                self.jobs.pop((ended.own, count), None)

    def _give_up(self, job: LiveJob, now: float) -> None:
        """Of one whose end nobody has told: what is known of it, as far as it was seen."""
        run = runs.read(job.own, job.run, self.folder) or Run(job.own, job.run)
        seen = max(run.seen or 0.0, job.seen or 0.0, job.began)
        user = job.user or _name_of(job.uid)
        lost = Ended(job.own, None, job.name or "?", user, job.uid, "UNKNOWN", "", None, job.began, seen,
                     None, None, "", job.own)  # fmt: skip
        use = replace(self._use(lost, run, job.log, is_last=True), id=job.id or str(job.own))
        ledger.add([use], self.folder)
        runs.forget(job.own, job.run, self.folder)
        self.jobs.pop(job.key, None)


def _is_proof(job: Ended | SlurmJob) -> bool:
    return (job.user, job.name) == ("root", PROOF)


def _named(job: LiveJob, found: SlurmJob) -> LiveJob:
    method, own_log = _of_workspace(found)
    log = own_log or (job_states.log_of(found) if found.batch else None)
    return replace(job, id=found.id, user=found.user, name=found.name, log=log, method=method)


def _of_workspace(job: Ended | SlurmJob) -> tuple[str | None, str | None]:
    """The method, and the log, of a submission of ours; what users write there is data."""
    work, found, _ = job.folder.partition(f"/jobs/{job.uid}/")
    if not found:
        return None, None
    record = records.of_folder(work, job.folder, whole=True)
    if record is None or record.place.uid != job.uid:
        return None, None
    name = record.request.get("name") if record.request.get("kind") == "method" else None
    return (job_states.shown(name, 100) if isinstance(name, str) else None), record.log(job.task)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def say(text: str) -> None:
    """Into the container's log."""
    print(f"dshpc: {text}", file=sys.stderr, flush=True)
