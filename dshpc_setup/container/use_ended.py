"""What each job has used, written into the ledger as the job ends."""

from __future__ import annotations

import pwd
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dshpc_setup.container.use_jobs import (
    ASK_S,
    COLUMNS,
    MOST_IDS,
    WatchedJobs,
    is_proof,
    of_workspace,
)
from dshpc_setup.container.use_log import EndedJobs
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.completion_log import Ended
from dshpc_setup.slurm.pending import parse_tres
from dshpc_setup.usage import ledger, live, runs
from dshpc_setup.usage.live import Gauge, LiveJob
from dshpc_setup.usage.records import HeldGpu, JobUse
from dshpc_setup.usage.runs import Run

_LATE_S = 300.0  # MinJobAge: so long slurmctld knows what a job had that has ended


class EndedUse:
    """Takes jobs out of `watched` and writes them down; what it has taken, no later one takes again."""

    def __init__(self, watched: WatchedJobs) -> None:
        self._watched, self._machine, self._folder = watched, watched.machine, watched.folder
        self._log = EndedJobs(watched.log, watched.folder)
        self.has_more = self._log.has_more
        # What slurmctld said of jobs that have ended, until it is written down: it forgets them
        self._had: dict[Ended, tuple[HeldGpu, ...]] = {}

    def take(self, now: float) -> None:
        try:
            ended = self._log.new_jobs()
        except OSError:
            return
        real = [job for job in ended if not is_proof(job)]
        gone = self._gone(real, now)
        late = {job for job, held in gone.items() if held is None}
        made = self._uses([job for job in real if job not in late], gone)
        if self._log.is_first and made:  # an earlier sampler may have come so far
            oldest = min(job.ended for job in made)
            there = {
                each.key for each in ledger.newest_first(None, self._folder) if each.ended >= oldest
            }
            made = [job for job in made if job.key not in there]
        ledger.add(made, self._folder)
        known = self._known_runs()
        for job in ended:
            if job not in late:
                self._forget(job, known)
        self._log.done(late)
        self._had.clear()
        self._watched.save(now)

    def give_up(self, job: LiveJob, now: float) -> None:
        """Of one whose end nobody has told: what is known of it, as far as it was seen."""
        run = runs.read(job.own, job.run, self._folder) or Run(job.own, job.run)
        seen = max(run.seen or 0.0, job.seen or 0.0, job.began)
        user = job.user or _name_of(job.uid)
        lost = Ended(job.own, None, job.name or "?", user, job.uid, "UNKNOWN", "", None, job.began, seen,
                     None, None, "", job.own)  # fmt: skip
        use = replace(self._use(lost, run, job.log, is_last=True), id=job.id or str(job.own))
        ledger.add([use], self._folder)
        runs.forget(job.own, job.run, self._folder)
        self._watched.jobs.pop(job.key, None)

    def _uses(
        self, ended: Sequence[Ended], gone: Mapping[Ended, tuple[HeldGpu, ...] | None]
    ) -> list[JobUse]:
        known = self._known_runs()
        logs = self._logs(ended, known)
        found: list[JobUse] = []
        for job in ended:
            mine = self._runs_of(job, known)
            for at, run in enumerate(
                mine or [Run(job.own, max(self._watched_runs(job.own), default=0))]
            ):
                is_last = at >= len(mine) - 1
                held = (gone.get(job) or ()) if is_last else ()
                found.append(self._use(job, run, logs.get(job.own), held, is_last=is_last))
        return found

    def _watched_runs(self, own: int) -> list[int]:
        """Runs of a job of which something was measured, where no note of it could be written."""
        return [run for each, run in self._watched.jobs if each == own]

    def _known_runs(self) -> dict[int, list[int]]:
        known: dict[int, list[int]] = {}
        for own, count in runs.names(self._folder):
            known.setdefault(own, []).append(count)
        return known

    def _runs_of(self, job: Ended, known: Mapping[int, list[int]]) -> list[Run]:
        return [run for run in runs.of_job(job.own, known, self._folder)
                if (run.began or 0.0) <= (job.ended or 0.0) + 1]  # fmt: skip

    def _gone(self, ended: Sequence[Ended], now: float) -> dict[Ended, tuple[HeldGpu, ...] | None]:
        """Of runs on other machines, on several nodes or beside a full disk, of whose GPUs neither sample nor
        step has told: what they had; None of one to be asked after again, as slurmctld has not answered."""
        found: dict[Ended, tuple[HeldGpu, ...] | None] = {}
        known, does_answer = self._known_runs(), True
        seen = {job.own for job in self._watched.jobs.values() if job.gpus and job.id is not None}
        has_others = self._watched.settings.listens or self._watched.settings.place.role != "alone"
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
            # Where not, the disk was full as it began
            is_noted = all(run.began is not None for run in mine)
            is_here = nodes == 1 and (
                job.node == self._watched.node or any(run.places for run in mine)
            )
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
        told = Slurm(self._machine).gpus_by_kind(job.own, deadline_s=ASK_S).value
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
        watched = self._watched.jobs.get((run.own, run.run))
        gpus = (
            gone
            or (watched.gpus if watched is not None else ())
            or self._watched.held(run, job.node)
        )
        gauges: Mapping[str, Gauge] = watched.gauges if watched is not None else {}
        peaks = [run.peak_kib and -(-run.peak_kib // 1024), watched and watched.peak_memory_mib]
        method, own_log = of_workspace(job)
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
        found = {job.own: job.log for job in self._watched.jobs.values() if job.log}
        unknown = [job for job in ended if job.own in known and job.own not in found
                   and f"/jobs/{job.uid}/" not in job.folder]  # fmt: skip
        batch = [job for job in unknown
                 if any(run.is_batch for run in runs.of_job(job.own, known, self._folder))]  # fmt: skip
        for at in range(0, len(batch), MOST_IDS):
            ids = [str(job.own) for job in batch[at : at + MOST_IDS]]
            told = Slurm(self._machine).rows(COLUMNS, "all", ids=ids, deadline_s=ASK_S).value
            found.update(
                (job.own, job_states.log_of(job)) for job in told or () if job.batch and job.log
            )
        return found

    def _forget(self, ended: Ended, known: Mapping[int, list[int]]) -> None:
        for count in known.get(ended.own, self._watched_runs(ended.own)):
            found = runs.read(ended.own, count, self._folder)
            if found is None or (found.began or 0.0) <= (ended.ended or 0.0) + 1:
                runs.forget(ended.own, count, self._folder)
                self._watched.jobs.pop((ended.own, count), None)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
