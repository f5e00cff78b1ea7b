"""All that is known of a job, from slurmctld, its completion log and the job's workspace."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dshpc_setup import signals
from dshpc_setup.jobs import results
from dshpc_setup.jobs.allocated_gpus import Gpu, Places
from dshpc_setup.jobs.end_notes import Notes
from dshpc_setup.jobs.records import Record
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.completion_log import Ended
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.usage.records import JobUse

_UNKNOWN = "UNKNOWN"
# Slurm's end of a job whose log it cannot open; no program has run then, and none has a result
_NO_LOG = 53
_NO_LOG_WORDS = "Slurm could not open its log: is the workspace still there?"
# Slurm's end of a job of which the kernel has ended processes for want of memory: SIG_OOM in slurm.h,
# less 128. What the kernel sends is SIGKILL
_OUT_OF_MEMORY = 125
MEMORY = {"gpu": "out of GPU memory", "host": "out of memory"}


@dataclass(frozen=True)
class View:
    """One job, or one task of an array; None is "not known". Times are seconds since 1970."""

    id: str
    number: int
    task: int | None
    name: str
    user: str | None
    state: str  # Slurm's word
    reason: str | None = None  # why it is queued
    gpus: tuple[Gpu, ...] = ()
    asked_gres: str | None = None
    partition: str | None = None
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: str | None = None
    max_rss_mib: int | None = None
    out_of_memory: str | None = None
    out_of_memory_line: str | None = None
    workspace: str | None = None
    log: str | None = None
    restarts: int = 0
    not_begun: str | None = None  # why its program was never started
    uid: int | None = None
    use: Mapping[str, Any] | None = None  # JobUse.use_json; None where nothing is written down
    nodes: tuple[str, ...] = ()  # where it runs or ran; of one that Slurm has forgotten, the first

    @property
    def words(self) -> str:
        return "not known" if self.state == _UNKNOWN else job_states.words(self.state)

    @property
    def is_over(self) -> bool:
        return self.state in job_states.ENDED

    def seconds(self, now: float) -> float | None:
        """How long it has run, or ran."""
        if self.started is None:
            return None
        return max(0.0, (self.ended or now) - self.started)

    def to_json(self, now: float | None = None) -> dict[str, Any]:
        seconds = self.seconds(time.time() if now is None else now)
        return {**asdict(self), "words": self.words, "seconds": seconds}


def of_known(
    job: SlurmJob, record: Record | None, places: Places, reason: str | None = None
) -> View:
    """A job that slurmctld knows."""
    result = (record.result(job.task) if record and job.has_ended else None) or {}
    view = replace(
        _of(job, record),
        reason=reason,
        gpus=places.of_job(job.held, job.nodes) if job.gres and not job.has_ended else (),
        asked_gres=job.asked or None,
        log=None
        if job_states.is_group(job.id)
        else _log(record, job.task) or job_states.log_of(job) or None,
        restarts=job.restarts,
        nodes=job.nodes,
    )
    return _with_result(view, result, places.on(next(iter(job.nodes), None)))


def of_ended(job: Ended, record: Record | None, places: Places) -> View:
    """A job of the completion log."""
    rest = _not_begun(job, record)
    view = replace(_of(job, record), nodes=(job.node,) if job.node else ())
    if rest:
        view = replace(view, id=f"{job.number}_[{rest}]", log=None)
    result = (record.result(job.task) if record else None) or {}
    return _with_result(view, result, places.on(job.node))


def _of(job: SlurmJob | Ended, record: Record | None) -> View:
    """What both say of a job."""
    return View(
        id=job.id,
        number=job.number,
        task=job.task,
        name=job.name,
        user=job.user,
        state=job.state,
        partition=job.partition or None,
        submitted=job.submitted,
        started=job.started,
        ended=job.ended,
        exit_code=_code(job.state, job.exit_code, job.signal),
        signal=_signal(job.state, job.signal),
        workspace=record.folder if record else None,
        log=_log(record, job.task),
        uid=job.uid,
    )


def _not_begun(job: Ended, record: Record | None) -> str:
    """ "3-9": the log has one line, without a task, for all tasks of an array that were cancelled in
    the queue."""
    return record.without_result() if record and job.task is None and record.task_count else ""


def of_record(record: Record, task: int | None, places: Places) -> View:
    """A job of which the workspace alone is left."""
    number = record.number or 0
    result = record.result(task) or {}
    code = result.get("exit_code")
    state = "COMPLETED" if results.ended_well(result) else "FAILED" if code else _UNKNOWN
    names = (record.job.get("name"), record.request.get("name"), record.folder.rpartition("/")[2])
    view = View(
        id=str(number) if task is None else f"{number}_{task}",
        number=number,
        task=task,
        name=next((name for name in names if isinstance(name, str) and name), "?"),
        user=None,
        state=state,
        workspace=record.folder,
        log=_log(record, task),
        uid=record.place.uid,
    )
    return _with_result(view, result, places)


def _with_result(view: View, result: Mapping[str, Any], places: Places) -> View:
    """With what the launcher wrote as the job ended (results.checked)."""
    if not result:
        if view.state == "FAILED" and view.signal == signals.name_of(_NO_LOG):
            return replace(view, exit_code=None, signal=None, not_begun=_NO_LOG_WORDS)
        return view
    # One that was ended by others was not ended by its memory
    by_memory = view.state in ("FAILED", "OUT_OF_MEMORY")
    changes: dict[str, Any] = {
        "exit_code": result.get("exit_code", view.exit_code),
        # Slurm's word for one that was out of memory is of any of its processes
        "signal": (None if view.state == "OUT_OF_MEMORY" else view.signal) or result.get("signal"),
        "max_rss_mib": result.get("max_rss_mib"),
        "out_of_memory": result.get("out_of_memory") if by_memory else None,
        "out_of_memory_line": result.get("out_of_memory_line") if by_memory else None,
        "started": view.started or result.get("started"),
        "ended": view.ended or result.get("ended"),
    }
    if not view.gpus:
        changes["gpus"] = places.of_variables(result.get("gpus", {}))
    if view.state == "OUT_OF_MEMORY" and changes["out_of_memory"] is None:
        changes["out_of_memory"] = "host"
    return replace(view, **changes)


def with_notes(view: View, notes: Notes, places: Places) -> View:
    """With what was kept of a job as it ended (end_notes); the launcher's own words come first."""
    if not view.is_over:
        return view
    if not view.gpus and notes.places:
        view = replace(view, gpus=places.of_variables(notes.variables))
    killed = view.state == "FAILED" and view.exit_code == 128 + signal.SIGKILL
    if not killed or not notes.by_memory or view.out_of_memory is not None:
        return view
    from dshpc_setup.jobs import ended_by_memory

    found = ended_by_memory.judge("", has_gpu=False, killed=True)
    return view if found is None else replace(
        view, out_of_memory=found.of, out_of_memory_line=found.line
    )  # fmt: skip


def with_use(view: View, used: JobUse) -> View:
    """With what was written down as it ended: what is known already comes first."""
    held = {gpu.uuid: gpu for gpu in used.gpus if gpu.uuid}
    kept = tuple(Gpu(gpu.index, gpu.uuid, None, None, gpu.type, gpu.node) for gpu in used.gpus)
    gpus = tuple(
        replace(gpu, type=gpu.type or held[gpu.uuid].type, node=held[gpu.uuid].node or gpu.node)
        if gpu.uuid in held
        else gpu
        for gpu in view.gpus
    )
    return replace(
        view,
        gpus=gpus if len(gpus) >= len(kept) else kept,
        log=view.log or used.log,
        use=used.use_json(),
    )


def of_task(view: View, task: int, record: Record | None) -> View:
    """One of the tasks that a view of several stands for."""
    from dataclasses import replace

    return replace(view, id=f"{view.number}_{task}", task=task, log=_log(record, task))


def exit_code(view: View) -> int:
    """The job's own, as a shell has it; 1 for one that was ended by others and has none of its own."""
    if view.state == "COMPLETED":
        return view.exit_code or 0
    return view.exit_code or 1


def outcome(view: View) -> str:
    """How it ended, in a few words: "failed: exit code 3", "failed: out of memory, exit code 1"."""
    if view.state == job_states.REFUSED:
        return f"{view.words} as it was submitted: it asks for more than there is"
    if view.state not in ("FAILED", "OUT_OF_MEMORY"):
        return view.words
    if view.state == "OUT_OF_MEMORY" and view.exit_code == 0:
        return f"{view.words}: the kernel ended some of its processes; its program ended with 0"
    code = None if view.exit_code is None else f"exit code {view.exit_code}"
    parts = (
        view.not_begun,
        MEMORY.get(view.out_of_memory or "") if view.state == "FAILED" else None,
        f"ended by {view.signal}" if view.signal else code,
    )
    told = ", ".join(part for part in parts if part)
    return f"{view.words}: {told}" if told else view.words


def _code(state: str, code: int | None, killed: int | None) -> int | None:
    """As a shell has it; Slurm says 0:15 of a job that it cancelled, and 0:0 of one that TERM did not
    end in time."""
    if killed:
        return 128 + _real(state, killed)
    return None if state not in ("COMPLETED", "FAILED") and not code else code


def _signal(state: str, number: int | None) -> str | None:
    return signals.name_of(_real(state, number)) if number else None


def _real(state: str, number: int) -> int:
    """The signal that was sent, for one that Slurm has made up."""
    is_made_up = (state, number) == ("OUT_OF_MEMORY", _OUT_OF_MEMORY)
    return int(signal.SIGKILL) if is_made_up else number


def _log(record: Record | None, task: int | None) -> str | None:
    return record.log(task) if record else None


def which(gpus: Sequence[Gpu]) -> str:
    """The GPUs by index, as `dshpc gpus` has them: "0,2"; "?" for one whose index is not known."""
    from dshpc_setup.probes import ranges

    known = ranges.text(gpu.index for gpu in gpus if gpu.index is not None)
    unknown = ("?" for gpu in gpus if gpu.index is None)
    return ",".join(filter(None, [known, *unknown]))


def duration(seconds: float) -> str:
    """As Slurm writes it: "0:05", "1:02:03", "1-02:03:04"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def together(views: Sequence[View]) -> list[View]:
    """Tasks of an array that ended alike become one line: 17_[0-998]."""
    from dshpc_setup.probes import ranges

    groups: dict[tuple[object, ...], list[View]] = {}
    for view in views:
        alike = (view.number, view.state, view.exit_code, view.out_of_memory)
        alone = view.task is None or not view.is_over
        groups.setdefault((view.id,) if alone else alike, []).append(view)
    found = []
    for group in groups.values():
        first = group[0]
        if len(group) > 1:
            tasks = ranges.text(view.task for view in group if view.task is not None)
            peaks = [view.max_rss_mib for view in group if view.max_rss_mib is not None]
            first = replace(
                first, id=f"{first.number}_[{tasks}]", task=None, gpus=(),
                started=min((view.started for view in group if view.started), default=None),
                ended=max((view.ended for view in group if view.ended), default=None),
                max_rss_mib=max(peaks, default=None),
            )  # fmt: skip
        found.append(first)
    return found


def in_order(view: View) -> tuple[int, int]:
    """By number, then by task; those that wait together come last."""
    waiting = re.search(r"_\[(\d+)", view.id)
    return view.number, view.task if view.task is not None else int(waiting[1]) if waiting else -1


def advice(of: str) -> str:
    """What to do about a job that was out of memory ("gpu" or "host")."""
    from dshpc_setup.jobs.ended_by_memory import OutOfMemory

    return OutOfMemory("gpu" if of == "gpu" else "host", "").advice
