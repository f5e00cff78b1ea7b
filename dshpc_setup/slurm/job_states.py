"""Jobs as slurmctld knows them: `squeue --json`, read into values, and Slurm's words in ours."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.machine import CommandResult
from dshpc_setup.probes import ranges
from dshpc_setup.slurm import answers
from dshpc_setup.slurm.answers import number
from dshpc_setup.terminal.sanitize import plain

REFUSED = (
    "REFUSED"  # ours, for a job that failed without a node: Slurm counts it as ended by SIGHUP
)
_HUP = 1

# slurm.schedmd.com/job_state_codes.html; the first that a job has counts
WORDS = {
    "COMPLETING": "ending",
    "CONFIGURING": "starting",
    "REQUEUED": "queued again",
    "REQUEUE_HOLD": "held",
    "SPECIAL_EXIT": "held",
    "PENDING": "queued",
    "RUNNING": "running",
    "SUSPENDED": "suspended",
    "STOPPED": "stopped",
    "COMPLETED": "done",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "over its time limit",
    "OUT_OF_MEMORY": "out of memory",
    "NODE_FAIL": "lost with its node",
    "BOOT_FAIL": "lost with its node",
    "PREEMPTED": "preempted",
    "DEADLINE": "over its deadline",
    "REVOKED": "revoked",
    REFUSED: "refused",
}
ENDED = frozenset(
    "COMPLETED FAILED CANCELLED TIMEOUT OUT_OF_MEMORY NODE_FAIL BOOT_FAIL PREEMPTED DEADLINE "
    "REVOKED REFUSED".split()
)
_ID = re.compile(r"([0-9]{1,10})(?:_([0-9]{1,10}))?", re.ASCII)


@dataclass(frozen=True)
class JobId:
    """`17`, or `17_2` of an array."""

    number: int
    task: int | None = None

    def __str__(self) -> str:
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"


@dataclass(frozen=True)
class SlurmJob:
    """A job that slurmctld knows, as far as it was asked about; times are seconds since 1970."""

    id: str  # "17", "17_2", "17_[3-9]" for the tasks of an array that wait together, "17+1"
    number: int = 0  # of its array as a whole
    task: int | None = None
    name: str = ""
    user: str = "?"
    state: str = ""
    reason: str = ""
    gres: str = ""  # "gpu:h100:2(IDX:0-1)", of its first node
    held: tuple[str, ...] = ()  # the same of each of its nodes
    asked: str = ""  # what it asks for: "gpu:h100:2"; "" for none that is known
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    folder: str = ""
    log: str = ""
    partition: str = ""
    restarts: int = 0
    dependency: str = ""
    begins: float | None = None  # when Slurm lets it begin, or expects it to
    uid: int | None = None
    own: int = 0  # its own number, also of a task of an array
    reservation: str = ""
    nodes: tuple[str, ...] = ()
    # Asked for in columns alone
    batch: bool = False  # of sbatch, and not of srun or salloc
    requeue: bool = False  # may be queued again
    nice: int = 0
    eligible: str = ""  # "2026-01-31T12:00:00", of Slurm's clock and zone; "N/A"
    elapsed: str = ""  # "1:02:03"

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


def parse_id(text: str) -> JobId:
    """Raises DshpcError (usage) for what is not a job ID."""
    match = _ID.fullmatch(text)
    if match is None:
        raise usage_error(
            f"{shown(text)!r} is not a job ID.",
            "A job ID is a number such as 17; a task of an array is 17_2.",
            "See the jobs: dshpc job list",
        )
    return JobId(int(match[1]), None if match[2] is None else int(match[2]))


def words(state: str) -> str:
    """A state for people; one that is not known, as Slurm says it."""
    return WORDS.get(state, state.lower().replace("_", " "))


def parse(text: str) -> tuple[SlurmJob, ...]:
    """`squeue --json`; raises ValueError for what is none of its answers."""
    items = answers.objects(text, "jobs")
    return tuple(_known(item) for item in items if "job_id" in item)


def _known(item: Mapping[str, Any]) -> SlurmJob:
    task = number(item.get("array_task_id"))
    of = number(item.get("array_job_id")) or number(item.get("job_id")) or 0
    code, killed = exit_of(item.get("exit_code"))
    state = _state(item.get("job_state"))
    if is_refused(state, killed, bool(item.get("nodes", True))):
        state, code, killed = REFUSED, None, None
    details = item.get("gres_detail")
    texts = [str(text) for text in details] if isinstance(details, list) else []
    started = _time(item.get("start_time"))
    return SlurmJob(
        id=answers.job_name(item),
        number=of,
        task=task,
        name=str(item.get("name") or ""),
        user=str(item.get("user_name") or item.get("user_id") or "?"),
        state=state,
        reason=str(item.get("state_reason") or ""),
        gres=texts[0] if texts else "",
        held=tuple(texts),
        nodes=_nodes(item),
        asked=str(item.get("tres_per_job") or item.get("tres_per_node") or ""),
        submitted=_time(item.get("submit_time")),
        started=started if _has_begun(item, state) else None,
        ended=_time(item.get("end_time")) if state in ENDED else None,
        exit_code=code if state in ENDED else None,
        signal=killed if state in ENDED else None,
        folder=str(item.get("current_working_directory") or ""),
        log=str(item.get("standard_output") or ""),
        partition=str(item.get("partition") or ""),
        restarts=number(item.get("restart_cnt")) or 0,
        dependency=str(item.get("dependency") or ""),
        begins=started,
        uid=number(item.get("user_id")),
        own=number(item.get("job_id")) or 0,
        reservation=str(item.get("resv_name") or ""),
    )


def _nodes(item: Mapping[str, Any]) -> tuple[str, ...]:
    """In the order of `gres_detail`; of one that has ended the first alone is told."""
    resources = item.get("job_resources")
    nodes = resources.get("nodes") if isinstance(resources, dict) else None
    places = nodes.get("allocation") if isinstance(nodes, dict) else None
    found = [
        str(each["name"]) for each in places or () if isinstance(each, dict) and "name" in each
    ]
    host = item.get("batch_host")
    return tuple(found) or ((host,) if isinstance(host, str) and host else ())


def is_refused(state: str, signal: int | None, had_node: bool) -> bool:
    """Of a job that Slurm took in and threw out at once, as it asks for more than there is."""
    return state == "FAILED" and signal == _HUP and not had_node


def _has_begun(item: Mapping[str, Any], state: str) -> bool:
    """Else the time is when Slurm expects it to begin, or when it was cancelled: it had no node then."""
    return state != "PENDING" and (state not in ENDED or bool(item.get("nodes", True)))


def _state(value: object) -> str:
    """24.11 lists a job's base state with its flags; which of them tells most comes first in WORDS."""
    found = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    # One that has ended and gives its node back is over for who waits for it
    over = [word for word in found if word in ENDED]
    return over[0] if over else min(found or ["?"], key=_rank)


def _rank(word: str) -> int:
    return list(WORDS).index(word) if word in WORDS else len(WORDS)


def exit_of(value: object) -> tuple[int | None, int | None]:
    """Exit code and signal of `{"return_code": {...}, "signal": {"id": {...}}}`."""
    if not isinstance(value, dict):
        return None, None
    killed = value.get("signal")
    of = number(killed.get("id")) if isinstance(killed, dict) else None
    return number(value.get("return_code")), of or None


def _time(value: object) -> float | None:
    found = number(value)
    return float(found) if found and 0 < found < answers.LATEST else None


def log_of(known: SlurmJob) -> str:
    """The log's path with sbatch's patterns filled in, as far as squeue has left them there."""
    if is_group(known.id):
        return ""  # tasks that wait together: each has its own
    array = str(known.number)
    values = {
        "%": "%", "j": array if known.task is None else known.id.partition("_")[0], "A": array,
        "a": "" if known.task is None else str(known.task), "x": known.name, "u": known.user,
    }  # fmt: skip
    path = re.sub(r"%([%jAaxu])", lambda found: values[found[1]], known.log)
    return path if path.startswith("/") or not path else f"{known.folder}/{path}"


def of(wanted: JobId, jobs: Sequence[SlurmJob]) -> tuple[SlurmJob, ...]:
    """That job: of an array without a task, all of them."""
    return tuple(
        job
        for job in jobs
        if job.number == wanted.number and (wanted.task is None or _holds(job, wanted.task))
    )


def _holds(job: SlurmJob, task: int) -> bool:
    """Whether it is this task, or these tasks of an array that wait together."""
    return job.task == task if job.task is not None else task in tasks_of(job.id)


def tasks_of(of_job: str) -> frozenset[int]:
    """Of "17_[1-4,9%2]" the tasks; "0-8:2" is every second one, and a long list is cut short ("1-4,...")."""
    match = re.fullmatch(r"\d+_\[([0-9,:-]*).*\]", of_job)
    spans = re.findall(
        r"([0-9]+(?:-[0-9]+)?)(?::([1-9][0-9]{0,8}))?(?:,|$)", match[1] if match else ""
    )
    found = (sorted(ranges.parse(span))[:: int(step or 1)] for span, step in spans)
    return frozenset().union(*found)


def is_group(of_job: str) -> bool:
    """Whether it stands for several tasks of an array: "17_[1-4]"."""
    return of_job.endswith("]")


def tasks(of_job: str) -> int:
    """How many tasks of an array an id stands for; 1 for a job that is none."""
    return len(tasks_of(of_job)) or 1


def no_answer(asked: CommandResult) -> DshpcError:
    """The controller does not say which jobs there are."""
    from dshpc_setup.errors import Exit

    return DshpcError(
        "The controller does not answer.",
        asked.text or f"squeue ended with {asked.code} ({asked.state}).",
        ("See what is wrong: dshpc doctor",),
        Exit.INCOMPLETE,
    )


def shown(text: str, most: int = 80) -> str:
    """What people wrote, on one line and with no sign that moves a terminal's cursor."""
    whole = plain(text)
    return whole if len(whole) <= most else f"{whole[: most - 3]}..."
