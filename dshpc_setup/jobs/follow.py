"""`dshpc-node job follow ID|WORKSPACE`: a job from the queue to its end, with its log, and its exit code.

Words of ours go to stderr, the job's log as it is to stdout. The controller is asked gently, and may
be away for a while.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Sequence

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs import command_words, safe_open, view
from dshpc_setup.jobs.allocated_gpus import texts
from dshpc_setup.jobs.command_words import parsed, put
from dshpc_setup.jobs.end_record import STOPPING
from dshpc_setup.jobs.reader import JobReader, unknown
from dshpc_setup.jobs.safe_open import NotTheirsError
from dshpc_setup.jobs.view import View
from dshpc_setup.jobs.workspace import RESULT, Workspace, of_task
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.job_states import JobId, SlurmJob
from dshpc_setup.terminal.sanitize import harmless

_TICK_S = 0.1
_SOON_S, _QUEUED_S, _RUNS_S = 0.5, 2.0, 2.0  # between two questions
_SOON = 10  # questions
_AWAY_S = 600.0  # how long the controller may be away
_WHY_S = 30.0  # why a job waits is asked again, though Slurm's word for it is the same


def main(rest: Sequence[str]) -> int:
    """The job's exit code; 130 where we were interrupted, which leaves the job alone: who asks says so."""
    words = parsed(rest)
    if len(words.ids) != 1:
        raise unknown_target("")
    target = words.ids[0]
    look = command_words.look_at(words)
    job = _of_folder(look, target) if target.startswith("/") else job_states.parse_id(target)
    try:
        return _Follower(look, job).follow()
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except BrokenPipeError:
        return 141


def _of_folder(look: JobReader, folder: str) -> JobId:
    record = look.record(folder)
    if record is None or record.number is None:
        raise unknown_target(folder)
    return JobId(record.number)


def unknown_target(folder: str) -> DshpcError:
    return DshpcError(
        f"{job_states.shown(folder, 300)!r} is neither a job ID nor a job's workspace.",
        "",
        ("See the jobs: dshpc job list",),
        Exit.USAGE,
    )


class _Follower:
    def __init__(self, look: JobReader, job: JobId) -> None:
        self.look, self.id = look, job
        self.told = ""  # what was said last
        self.why: tuple[str, float] = ("", 0.0)  # Slurm's word for why it waits, when it was asked
        self.asked = 0
        self.last: SlurmJob | None = None
        self.away_since: float | None = None
        self.log: _Log | None = None

    def follow(self) -> int:
        while True:
            known = self._ask()
            if known is not None:
                mine = job_states.of(self.id, known)
                if not mine:
                    return self._end(known)
                if len(mine) > 1 or (self.id.task is None and job_states.is_group(mine[0].id)):
                    if all(job.has_ended for job in mine):
                        return self._end(known)
                    self._tell(_counted(mine))
                else:
                    (job,) = mine
                    if job.has_ended:
                        self._take_log(job)
                        return self._end(known)
                    self._progress(job)
            self._until_next()

    def _ask(self) -> tuple[SlurmJob, ...] | None:
        """None while the controller is away."""
        if os.path.exists(
            STOPPING
        ):  # it has ended, and we do with the container; the job still prints
            self._tell("the cluster is being stopped")
            return None
        self.asked += 1
        try:
            found = self.look.known(self.id.number)
        except DshpcError:
            now = time.monotonic()
            self.away_since = self.away_since or now
            if now - self.away_since > _AWAY_S:
                raise
            self._tell("the controller does not answer; waiting for it")
            return None
        self.away_since = None
        return found

    def _progress(self, job: SlurmJob) -> None:
        """Say what is new."""
        self.last = job
        if job.state == "PENDING":
            word, when = self.why
            now = time.monotonic()
            if job.reason != word or now - when > _WHY_S:
                from dshpc_setup.jobs import pending_reasons

                why = pending_reasons.reasons(self.look.machine, (job,))[job.id]
                self.why = (job.reason, now)
                # In its first moments nobody has looked at it yet: that is no news
                if job.reason not in ("", "None") or self.asked > 2:
                    self._tell(f"job {job.id} is queued: {why}")
            return
        self._take_log(job)
        if job.state == "RUNNING":
            gpus = "; ".join(texts(self.look.places.of_job(job.held, job.nodes)))
            self._tell(f"job {job.id} is running{f' on {gpus}' if gpus else ''}")
        else:
            self._tell(f"job {job.id} is {job_states.words(job.state)}")

    def _take_log(self, job: SlurmJob) -> None:
        """Its log, from now on; one that runs again begins a new one."""
        if self.log is None:
            record = self.look.record_of(job)
            path = record.log(job.task) if record else job_states.log_of(job)
            result = (record.place, of_task(RESULT, job.task)) if record else None
            self.log = _Log(path, self.look.work, job.uid, result)

    def _until_next(self) -> None:
        """Wait until the controller is to be asked again, with the log flowing."""
        runs = self.last is not None and self.last.state == "RUNNING"
        wait = _SOON_S if self.asked <= _SOON else _RUNS_S if runs else _QUEUED_S
        until = time.monotonic() + wait
        while time.monotonic() < until:
            time.sleep(_TICK_S)
            if self.log is not None:
                self.log.pump()
                if self.log.has_new_result():
                    return

    def _end(self, known: tuple[SlurmJob, ...]) -> int:
        """The last of the log, how the job ended, its exit code; the controller is not asked again."""
        if self.log is not None:
            self.log.pump()
        found = self.look.views(self.id, known)
        if not found:
            raise unknown(self.id)
        if self.log is None and len(found) == 1 and found[0].log:
            _Log(found[0].log, self.look.work, found[0].uid, None).pump()
        if len(found) == 1 and found[0].gpus and "running" not in self.told:
            _say(f"job {self.id} ran on {'; '.join(texts(found[0].gpus))}")
        lost = self._taken_out(found)
        for one in view.together(found):
            self._say_end(one, alone=len(found) + lost == 1)
        if any(one.state != "COMPLETED" for one in found) and _is_full(found[0].workspace):
            _say(f"the disk of {self.look.work} is full: what was printed may be cut short")
        if len(found) + lost > 1 or job_states.is_group(found[0].id):
            bad = [one for one in found if one.state != "COMPLETED"]
            total = lost + sum(job_states.tasks(one.id) for one in found)
            never = f", {lost} never began" if lost else ""
            _say(
                f"job {self.id} has ended: {len(found) - len(bad)} of {total} tasks are done{never}"
            )
            begun = (one.task for one in [*bad, *found] if one.started is not None)
            task = next(begun, None)
            if task is not None:  # no array, but the parts of a job of several
                _say(f"what a task printed: dshpc job logs {self.id} --task {task}")
        return max(*(view.exit_code(one) for one in found), 1 if lost else 0)

    def _taken_out(self, found: Sequence[View]) -> int:
        """How many tasks of an array were cancelled while they waited: Slurm keeps nothing of them."""
        folder = found[0].workspace if self.id.task is None else None
        record = self.look.record(folder)
        if record is None:
            return 0
        begun = {one.task for one in found if one.task is not None}.union(record.tasks())
        waited = sum(job_states.tasks(one.id) for one in found if one.task is None)
        return max(record.task_count - len(begun) - waited, 0)

    def _say_end(self, one: View, *, alone: bool) -> None:
        """Of many tasks those that ended well are counted only."""
        if one.state == "COMPLETED":
            if alone:
                _say(f"job {one.id}: {_done(one)}")
            return
        _say(f"job {one.id}: {view.outcome(one)}")
        if one.out_of_memory_line:
            _say(job_states.shown(one.out_of_memory_line, 300))
        elif one.out_of_memory and alone:  # the launcher has not said so in the log
            _say(view.advice(one.out_of_memory))

    def _tell(self, text: str) -> None:
        if text != self.told:
            self.told = text
            _say(text)


class _Log:
    """A user's log that grows; `result`, a file of a workspace, appears as the job ends."""

    def __init__(
        self, path: str, work: str, uid: int | None, result: tuple[Workspace, str] | None
    ) -> None:
        self.path, self.work, self.uid, self.result = path, work, uid, result
        self.at = 0
        self.is_refused = False
        self.seen = _stamp(result)

    def pump(self) -> None:
        """What is new goes to stdout; a log that was begun anew is read from its beginning."""
        try:
            handle = safe_open.file_at(self.path, self.work, self.uid)
        except FileNotFoundError:  # not there yet
            return
        except OSError as error:
            if isinstance(error, IsADirectoryError | NotTheirsError) or error.errno == errno.ELOOP:
                self._refuse()
            return
        try:
            if os.fstat(handle).st_size < self.at:
                self.at = 0
            os.lseek(handle, self.at, os.SEEK_SET)
            while block := os.read(handle, 1 << 16):
                self.at += len(block)
                put(block)
        finally:
            os.close(handle)

    def _refuse(self) -> None:
        """Said once: a link, a folder, a pipe or another user's file stands in the log's place."""
        if not self.is_refused:
            self.is_refused = True
            _say(f"the log is not a file of the job's user: {job_states.shown(self.path, 300)}")

    def has_new_result(self) -> bool:
        now = _stamp(self.result)
        new = now is not None and now != self.seen
        self.seen = now
        return new


def _stamp(result: tuple[Workspace, str] | None) -> tuple[int, int] | None:
    if result is None:
        return None
    place, name = result
    try:
        with place.own() as own:
            found = os.stat(name, dir_fd=own, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _is_full(folder: str | None) -> bool:
    try:
        return folder is not None and os.statvfs(folder).f_bavail == 0
    except OSError:
        return False


def _done(one: View) -> str:
    """ "done, after 0:02"."""
    seconds = None if one.ended is None else one.seconds(one.ended)
    after = "" if seconds is None else f", after {view.duration(seconds)}"
    return f"{view.outcome(one)}{after}"


def _counted(jobs: Sequence[SlurmJob]) -> str:
    """ "17: 3 tasks are done, 2 are running, 5 are queued"."""
    counts: dict[str, int] = {}
    for job in jobs:
        word = job_states.words(job.state)
        counts[word] = counts.get(word, 0) + job_states.tasks(job.id)
    told = ", ".join(f"{count} {word}" for word, count in counts.items())
    return f"job {jobs[0].number}: {told}"


def _say(text: str) -> None:
    if "dshpc " in text:
        from dshpc_setup.terminal.command_names import as_called

        text = as_called(text)
    sys.stderr.write(f"dshpc: {harmless(text)}\n")
    sys.stderr.flush()
