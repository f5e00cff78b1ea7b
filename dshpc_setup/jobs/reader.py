"""Jobs looked up in the container: asked of slurmctld, else found in its log and in workspaces."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import allocated_gpus, end_notes, records, rights, safe_open, view
from dshpc_setup.jobs.limits import Limits
from dshpc_setup.jobs.records import Record
from dshpc_setup.jobs.view import View
from dshpc_setup.machine import Machine
from dshpc_setup.slurm import completion_log, job_states, queue_index
from dshpc_setup.slurm.client import Answer, Slurm
from dshpc_setup.slurm.completion_log import Ended
from dshpc_setup.slurm.job_states import JobId, SlurmJob
from dshpc_setup.usage.lookup import Uses

_ASK_S = 20.0
_LATELY_S = 24 * 3600.0
_USERS = 5  # that are named
_LATELY = 20  # jobs that have ended, where not all are asked for
_PROOF = ("root", "dshpc-proof")  # of each start and run: container/jobs.py


def _only_user() -> str | None:
    """Who all users are, where all are one: Slurm knows that one as root."""
    return os.environ.get("USER") if rights.is_one_id() else None


@dataclass
class JobReader:
    """`work` is the work folder, in whose folder `jobs` the workspaces lie."""

    machine: Machine
    work: str
    log: str | None = field(default_factory=completion_log.path)
    places: allocated_gpus.Places = field(default_factory=allocated_gpus.known)
    limits: Limits = field(default_factory=Limits)  # of `all`, and what else was left out
    uses: Uses = field(default_factory=Uses)
    left_out: Mapping[str, int] = field(default_factory=dict)  # user -> jobs that `all` has not
    only_user: str | None = field(default_factory=_only_user)

    def known(self, *numbers: int) -> tuple[SlurmJob, ...]:
        """What slurmctld has, of some jobs or of all; raises DshpcError where it does not answer."""
        slurm = Slurm(self.machine)
        entries = None if numbers else slurm.index(deadline_s=_ASK_S).value
        if entries and len(entries) > queue_index.MOST:
            return _told(slurm.long_queue(entries, deadline_s=_ASK_S))
        return _told(slurm.jobs(*numbers, deadline_s=_ASK_S))

    def record_of(self, job: SlurmJob | Ended) -> Record | None:
        """The workspace that a job runs in; None for one that plain sbatch has made, and where it is not
        that of the user whose job Slurm says it is."""
        found = self.record(job.folder)
        if found is None or found.place.uid != job.uid:
            return None
        return found if found.number in (job.number, None) else None

    def record(self, folder: str | None, *, whole: bool = False) -> Record | None:
        """The workspace of that path."""
        if not folder:
            return None
        return records.of_folder(self.work, folder, whole=whole, limits=self.limits)

    def views(
        self,
        job: JobId,
        known: tuple[SlurmJob, ...] | None = None,
        logged: Mapping[int, tuple[Ended, ...]] | None = None,
    ) -> list[View]:
        """All that is known of a job, of an array all of its tasks; [] for one that nobody knows.

        Who asks for many gives what the controller has (`known`) and what its log has (`logged`).
        """
        jobs = self.known(job.number) if known is None else known
        found = {each.id: self._of_known(each) for each in job_states.of(job, jobs)}
        found = {one.id: one for one in (self._narrowed(each, job) for each in found.values())}
        if job.task is not None and found:
            return list(found.values())
        if any(each.task is None and not job_states.is_group(each.id) for each in found.values()):
            return list(found.values())  # no array
        groups = any(job_states.is_group(one) for one in found)
        if logged is None:
            logged = {job.number: completion_log.find(self.log, job.number, job.task)}
        for past in logged.get(job.number, ()):
            # Its line without a task is of those that the controller still has together
            new = past.id not in found and not (groups and past.task is None)
            if new and job.task in (None, past.task):
                one = self._of_ended(past)
                plain = one.workspace or one.log
                found[past.id] = one if plain else replace(one, log=self._plain_log(past))
        if not found:
            record = records.find(self.work, job.number, self.limits)
            if record is not None:
                tasks: list[int | None] = [*record.tasks()] or [None]
                picked = [task for task in tasks if job.task in (None, task)]
                each_view = (
                    view.of_record(record, task, self.places)
                    for task in picked
                    if not self.limits.is_late(record.folder)
                )
                found = {one.id: one for one in each_view}
        return sorted(found.values(), key=view.in_order)

    def _of_known(self, job: SlurmJob, why: str | None = None) -> View:
        one = self._named(view.of_known(job, self.record_of(job), self.places, why))
        return self._with_notes(one, job) if job.has_ended else one

    def _of_ended(self, job: Ended) -> View:
        one = self._named(view.of_ended(job, self.record_of(job), self.places))
        return self._with_notes(one, job)

    def _named(self, one: View) -> View:
        return replace(one, user=self.only_user) if self.only_user and one.uid == 0 else one

    def _with_notes(self, one: View, job: SlurmJob | Ended) -> View:
        if job.uid is None or job_states.is_group(one.id):
            return one
        node = job.node if isinstance(job, Ended) else next(iter(job.nodes), None)
        one = view.with_notes(one, end_notes.read(job.uid, job.own), self.places.on(node))
        used = self.uses.find(job.own, one.ended)
        return one if used is None else view.with_use(one, used)

    def _plain_log(self, job: Ended) -> str | None:
        """Of a job that plain sbatch has made and slurmctld has forgotten: its log where that has sbatch's
        own name, is the user's, and was written to since the job began; what `-o` said is not kept."""
        path = completion_log.default_log(job)
        try:
            handle = safe_open.file_at(path, self.work, job.uid)
        except OSError:
            return None
        try:
            written = os.fstat(handle).st_mtime
        finally:
            os.close(handle)
        return path if job.started is not None and written >= job.started else None

    def _narrowed(self, one: View, job: JobId) -> View:
        """Of tasks that wait together, or were cancelled together, the one that is asked for."""
        if job.task is None or not job_states.is_group(one.id):
            return one
        record = self.record(one.workspace)
        return view.of_task(one, job.task, record)

    def one(self, text: str) -> tuple[JobId, list[View]]:
        """The job of that number; raises DshpcError where there is none."""
        job = job_states.parse_id(text)
        self.limits.begin()
        found = self.views(job)
        if not found:
            raise self._no_task(job) or unknown(job)
        return job, found

    def _no_task(self, job: JobId) -> DshpcError | None:
        """Why a task of an array is not known; None where there is no such array."""
        whole = self.views(JobId(job.number)) if job.task is not None else []
        folder = next((one.workspace for one in whole if one.workspace), None)
        record = self.record(folder)
        if record is None:
            return None
        step = (f"See all of it: dshpc job show {job.number}",)
        if (job.task or 0) < record.task_count:
            why = "One that is cancelled while it is queued leaves no trace."
            return DshpcError(
                f"Nothing is known of task {job.task} of job {job.number}.", why, step
            )
        last = record.task_count - 1
        why = f"Its tasks are 0 to {last}." if record.task_count else "It is no array."
        return DshpcError(f"Job {job.number} has no task {job.task}.", why, step, absent=True)

    def all(self, *, whole: bool) -> list[View]:
        """Running, queued and lately ended jobs; `whole`: all that have left a trace."""
        slurm = Slurm(self.machine)
        entries = slurm.index(deadline_s=_ASK_S).value or ()
        if len(entries) > queue_index.MOST:
            chosen = queue_index.choose(entries, os.getuid())
            self.left_out = queue_index.left_out(entries, chosen)
            asked = _told(slurm.long_queue(chosen, deadline_s=_ASK_S))
        else:
            asked = _told(slurm.jobs(deadline_s=_ASK_S))
        jobs = [job for job in asked if (job.user, job.name) != _PROOF]
        why = _reasons(self.machine, tuple(jobs))
        self.limits.begin()  # it is the time of reading: a controller with much to tell takes none of it
        found = {job.id: self._of_known(job, why.get(job.id)) for job in jobs}
        seen = {job.number for job in jobs} | {each.number for each in entries}
        most = len(seen) + _LATELY
        since = 0.0 if whole else time.time() - _LATELY_S
        for more in self._over(seen, since):
            found.setdefault(more.id, more)
            seen.add(more.number)
            if not whole and len(seen) >= most:
                break
        return sorted(found.values(), key=view.in_order)

    def notes(self) -> list[str]:
        """What is not in the answer, for people."""
        said = self.limits.lines()
        if self.left_out:
            users = list(self.left_out.items())
            first = ", ".join(f"{count} of {user}" for user, count in users[:_USERS])
            more = f" and of {len(users) - _USERS} more users" if len(users) > _USERS else ""
            said.append(f"Not listed, as the queue is long: {first}{more}. All: dshpc squeue")
        return said

    def _over(self, seen: set[int], since: float) -> Iterator[View]:
        """Own jobs that slurmctld has forgotten, the newest first; root's are everybody's."""
        uid = os.getuid()
        logged: set[int] = set()
        for job in completion_log.newest_first(self.log):
            proof = (job.user, job.name) == _PROOF
            if proof or uid not in (0, job.uid) or (job.number in seen - logged):
                continue
            if (job.ended or 0.0) < since:
                break
            logged.add(job.number)
            yield self._of_ended(job)
        if since:
            return
        for record in records.newest_first(self.work, limits=self.limits):
            if record.number is not None and record.number not in seen | logged:
                tasks: list[int | None] = [*record.tasks()] or [None]
                for task in tasks:
                    if self.limits.is_late(record.folder):
                        return
                    yield view.of_record(record, task, self.places)


def _told(answer: Answer[tuple[SlurmJob, ...]]) -> tuple[SlurmJob, ...]:
    if answer.value is None:
        raise job_states.no_answer(answer.asked)
    return answer.value


def _reasons(machine: Machine, jobs: tuple[SlurmJob, ...]) -> dict[str, str]:
    """Imports are counted: nothing waits most of the time."""
    if not any(job.state == "PENDING" for job in jobs):
        return {}
    from dshpc_setup.jobs import pending_reasons

    return pending_reasons.reasons(machine, jobs)


def unknown(job: JobId) -> DshpcError:
    return DshpcError(
        f"There is no job {job}.",
        "Neither the controller nor its log of ended jobs knows it, and no workspace is of it.",
        ("See what there is: dshpc job list --all",),
        absent=True,
    )
