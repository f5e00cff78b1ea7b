"""How jobs ended that slurmctld has forgotten: its job completion log, one line for each.

slurmctld forgets a job MinJobAge (five minutes) after its end. jobcomp/filetxt writes
`JobId=17 UserId=me(1000) ... Name=... JobState=... ExitCode=0:0` as the job ends
(src/plugins/jobcomp/filetxt/jobcomp_filetxt.c, 24.11); a name may hold anything but a line break.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from dshpc_setup.slurm.job_states import REFUSED, is_refused

LOG = "/var/lib/dshpc/state/jobcomp/jobs.log"
_TYPE, _CONF = "jobcomp/filetxt", "/etc/slurm/slurm.conf"
MOST_BYTES = 8 << 20  # some 20,000 jobs; at a start the newer half of more is kept
_READ_BYTES = 16 << 20

# In the order in which they are written: names are anything, and may say "JobState=" themselves
_LINE = re.compile(
    r"JobId=(?P<raw>\d+) UserId=(?P<user>.*?)\((?P<uid>\d+)\) GroupId=.*?\(\d+\) Name=(?P<name>.*) "
    r"JobState=(?P<state>[A-Z_]+)\S* Partition=(?P<partition>\S*) TimeLimit=(?P<limit>\S*) "
    r"StartTime=(?P<started>\S*) EndTime=(?P<ended>\S*) NodeList=(?P<nodes>\S*) .*?"
    r"WorkDir=(?P<folder>.*) ReservationName=.*? Tres=(?P<tres>\S*) (?P<rest>.*)"
)


# A line that does not say the number is not of that job, and reading it whole takes far longer
_NUMBERS = re.compile(r"JobId=(\d+)")  # ArrayJobId= too


@dataclass(frozen=True)
class Ended:
    """A job that is over; times are seconds since 1970."""

    number: int  # of its array as a whole
    task: int | None
    name: str
    user: str
    uid: int
    state: str
    partition: str
    submitted: float | None
    started: float | None
    ended: float | None
    exit_code: int | None
    signal: int | None
    folder: str
    own: int = 0  # its own number, also of a task of an array
    tres: str = (
        ""  # "cpu=1,mem=2711M,node=1,billing=1"; no GPUs, which Slurm counts with a database alone
    )
    node: str | None = None  # the first of those that it ran on

    @property
    def id(self) -> str:
        return str(self.number) if self.task is None else f"{self.number}_{self.task}"


def parse(line: str) -> Ended | None:
    """One line; None for what is none."""
    match = _LINE.fullmatch(line.rstrip())
    if match is None:
        return None
    rest = match["rest"]
    array = re.search(r"\bArrayJobId=(\d+)", rest)
    task = re.search(r"\bArrayTaskId=(\d+)\b", rest)
    submitted = re.search(r"\bSubmitTime=(\S+)", rest)
    code = re.search(r" ExitCode=(\d+):(\d+)", rest)
    signal = (int(code[2]) or None) if code else None
    # One that was cancelled in the queue has no node, and for its beginning the time of its end
    had_node = match["nodes"] != "(null)"
    refused = is_refused(match["state"], signal, had_node)
    return Ended(
        number=int(array[1] if array else match["raw"]),
        task=int(task[1]) if task else None,
        name=match["name"],
        user=match["user"],
        uid=int(match["uid"]),
        state=REFUSED if refused else match["state"],
        partition=match["partition"],
        submitted=_time(submitted[1] if submitted else ""),
        started=_time(match["started"]) if had_node else None,
        ended=_time(match["ended"]),
        exit_code=int(code[1]) if code and not refused else None,
        signal=None if refused else signal,
        folder=match["folder"],
        own=int(match["raw"]),
        tres=match["tres"],
        node=_first_node(match["nodes"]) if had_node else None,
    )


def _first_node(text: str) -> str | None:
    """ "lab-[2-3,5],other" -> "lab-2"."""
    found = re.match(r"([\w.-]+?)(?:\[(\d+)[^\]]*\])?(?:,|$)", text, re.ASCII)
    return None if found is None else found[1] + (found[2] or "")


def default_log(job: Ended) -> str:
    """Where sbatch has a job print that names no log: slurm-%j.out, of an array's task slurm-%A_%a.out."""
    return f"{job.folder}/slurm-{job.id}.out"


def _time(text: str) -> float | None:
    """The node's local time, as Slurm writes it; None for "Unknown"."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def path(conf: str = _CONF) -> str | None:
    """Where the log of the configuration in force lies; None where the user has it kept otherwise."""
    from dshpc_setup.slurm import slurm_conf

    try:
        with open(conf, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return None
    if slurm_conf.last(text, "JobCompType") != _TYPE:
        return None
    return slurm_conf.last(text, "JobCompLoc")


def newest_first(log: str | None) -> Iterator[Ended]:
    """The jobs that have ended, as far as they are kept; none where the log is not there."""
    for line in _lines(log):
        found = parse(line) if line else None
        if found is not None:
            yield found


def _lines(log: str | None) -> Iterator[str]:
    """The newest first."""
    if log is None:
        return
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _READ_BYTES))
            lines = file.read(_READ_BYTES).decode("utf-8", "replace").split("\n")
    except OSError:
        return
    yield from reversed(lines)


def find(log: str | None, number: int, task: int | None = None) -> tuple[Ended, ...]:
    """That job, of an array all tasks; of a number that there was twice, the newest."""
    found = find_all(log, (number,)).get(number, ())
    return tuple(each for each in found if task in (None, each.task))


def find_all(log: str | None, numbers: Collection[int]) -> dict[int, tuple[Ended, ...]]:
    """As `find`, for many at once: the log is read once. Who has left no line is not in it."""
    wanted = {str(number) for number in numbers}
    found: dict[int, dict[int | None, Ended]] = {}
    for line in _lines(log) if wanted else ():
        each = parse(line) if not wanted.isdisjoint(_NUMBERS.findall(line)) else None
        if each is not None and str(each.number) in wanted:
            found.setdefault(each.number, {}).setdefault(each.task, each)
    return {
        number: tuple(sorted(tasks.values(), key=lambda each: each.task or 0))
        for number, tasks in found.items()
    }


def trim(log: str, owner: tuple[int, int]) -> None:
    """Before slurmctld runs: of a log that has grown too large, the newer half is kept.

    Raises DshpcError where it cannot be written.
    """
    from dshpc_setup.files.storage import cannot_write, replace_bytes

    try:
        found = os.lstat(log)
        if found.st_size <= MOST_BYTES:
            if found.st_uid != owner[0]:
                os.chown(log, *owner, follow_symlinks=False)
            return
        with open(log, "rb") as file:
            file.seek(found.st_size - MOST_BYTES // 2)
            file.readline()  # half of one
            kept = file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_write(log, error) from None
    replace_bytes(log, kept, owner=owner, sync=False)
