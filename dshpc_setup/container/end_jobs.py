"""The container stops: the processes of jobs are told so, once, and have a few seconds.

Slurm's daemons have ended by now (container/rootfs, `stop`): they must not see a job end, so that it
starts again at the next start. Imports are counted: every stop of a container waits for this.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from dshpc_setup.jobs.end_record import JOBS_TOLD

# With what the daemons take, within the 10 s of `docker stop` and the stop_grace_period of our file
GRACE_S = 7.0
_POLL_S = 0.05
_STEP, _CLIENT = "slurmstepd", "srun"


@dataclass(frozen=True)
class Process:
    """A line of /proc/PID/stat; `name` as the kernel has it, `state` a letter.

    `title` is what a slurmstepd calls itself: "slurmstepd: [17.batch]", of a step of srun "[17.0]".
    """

    pid: int
    name: str
    state: str
    parent: int
    session: int
    has_terminal: bool = False
    title: str = ""

    @property
    def has_ended(self) -> bool:
        return self.state in "ZX"


Table = Mapping[int, Process]
Reaction = Literal["default", "ignores", "catches"]  # to SIGTERM


def main() -> int:
    end_jobs(processes, reaction, os.kill, mark)
    return 0


def end_jobs(
    look: Callable[[], Table],
    react: Callable[[int], Reaction],
    kill: Callable[[int, int], None],
    begin: Callable[[], None],
) -> None:
    """Tell all processes of jobs to end, and wait until they have, GRACE_S at most; `begin` comes before the
    first of them is told: what has ended until then has ended by itself, and does not run again.

    A slurmstepd kills what is left where its task has ended (in the tier `enforced`; seen with 24.11.5).
    So it is stopped before, for good: that of a batch script always, for nothing goes through it; that of
    a step, through which all goes that its tasks print, only where somebody would be killed.
    """
    table = look()
    steps = frozenset(pid for pid, process in table.items() if process.name == _STEP)
    batch = frozenset(pid for pid in steps if ".batch]" in table[pid].title)
    for pid in batch | would_kill(table, steps - batch, react):
        _tell(kill, pid, signal.SIGSTOP)
    table = look()
    signalled = frozenset(pid for pid in of_steps(table, steps) if table[pid].name != _CLIENT)
    if not signalled:
        return
    begin()
    _say(f"Running jobs get SIGTERM and have {GRACE_S:.0f} s to end.")
    for pid in signalled:
        hangs_up = is_prompt(table, pid) and react(pid) == "ignores"
        _tell(kill, pid, signal.SIGHUP if hangs_up else signal.SIGTERM)
        _tell(kill, pid, signal.SIGCONT)  # as Slurm does: one that is suspended cannot hear
    until = time.monotonic() + GRACE_S
    while left := still_there(table := look(), steps, signalled):
        if time.monotonic() >= until:
            count = f"{len(left)} process{'es' if len(left) > 1 else ''} of jobs"
            _say(f"{count} did not end within {GRACE_S:.0f} s.")
            return
        for pid in idle_clients(table, steps, batch):
            _tell(kill, pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def mark() -> None:
    """For the launchers of jobs: whatever ends from here on begins anew."""
    with contextlib.suppress(OSError):
        os.mkdir(JOBS_TOLD)


def would_kill(
    table: Table, steps: frozenset[int], react: Callable[[int], Reaction]
) -> frozenset[int]:
    """The slurmstepds a task of which ends at once upon SIGTERM, such as a shell that knows no `trap`, and
    below it is one that does something upon it."""
    tasks = {
        pid for pid, process in table.items() if process.parent in steps and react(pid) == "default"
    }
    return frozenset(
        table[task].parent
        for pid in table
        for task in tasks.intersection(_over(table, pid))
        if react(pid) == "catches"
    )


def is_prompt(table: Table, pid: int) -> bool:
    """Whether it may be a shell in which nothing runs (`srun --pty bash`): that ignores SIGTERM."""
    return table[pid].has_terminal and all(each.parent != pid for each in table.values())


def of_steps(table: Table, steps: frozenset[int]) -> frozenset[int]:
    """The processes below these slurmstepds, and those that such have left in the same session."""
    sessions = {table[pid].session for pid in steps if pid in table}
    return frozenset(
        pid
        for pid, process in table.items()
        if process.name != _STEP
        and (process.session in sessions or not steps.isdisjoint(_over(table, pid)))
    )


def still_there(table: Table, steps: frozenset[int], signalled: frozenset[int]) -> frozenset[int]:
    """Of those that were told, and of what they have started meanwhile, those that have not ended."""
    return frozenset(
        pid
        for pid in of_steps(table, steps) | signalled
        if pid in table and not table[pid].has_ended and table[pid].name != _CLIENT
    )


def idle_clients(table: Table, steps: frozenset[int], batch: frozenset[int]) -> frozenset[int]:
    """Each srun in a batch script, once no task of a step is left: it would not hear of that.

    For each message slurmstepd needs a token from a daemon, and there is none. TERM does not end an
    srun either: it asks slurmd to end its tasks.
    """
    if still_there(table, steps - batch, frozenset()):
        return frozenset()
    return frozenset(pid for pid in of_steps(table, batch) if table[pid].name == _CLIENT)


def _over(table: Table, pid: int) -> Iterator[int]:
    """Those that a process descends from; a table is not of one moment, and may hold a circle."""
    seen = {pid}
    while (found := table.get(pid)) is not None and found.parent not in seen:
        pid = found.parent
        seen.add(pid)
        yield pid


def parse(text: str) -> Process | None:
    """/proc/PID/stat; None for what is none. A name may hold blanks and brackets."""
    before, _, after = text.rpartition(")")
    pid, _, name = before.partition(" (")
    fields = after.split()
    try:
        parent, session, terminal = (int(fields[place]) for place in (1, 3, 4))
        return Process(int(pid), name, fields[0], parent, session, terminal != 0)
    except (ValueError, IndexError):
        return None


def processes() -> dict[int, Process]:
    """All of the container."""
    texts = (_read(f"/proc/{pid}/stat") for pid in os.listdir("/proc") if pid.isdecimal())
    found = (process for text in texts if (process := parse(text)) is not None)
    return {process.pid: _with_title(process) for process in found}


def _with_title(process: Process) -> Process:
    if process.name != _STEP:
        return process
    return replace(process, title=_read(f"/proc/{process.pid}/cmdline"))


def reaction(pid: int) -> Reaction:
    """From SigCgt and SigIgn of /proc/PID/status, masks in hexadecimal."""
    lines = (line.partition(":") for line in _read(f"/proc/{pid}/status").splitlines())
    found = {name: value for name, _, value in lines}
    caught, ignored = (
        int(found.get(name, "0"), 16) >> (signal.SIGTERM - 1) & 1 for name in ("SigCgt", "SigIgn")
    )
    return "catches" if caught else "ignores" if ignored else "default"


def _read(path: str) -> str:
    """ "" of a process that has ended."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _tell(kill: Callable[[int, int], None], pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(pid, number)


def _say(text: str) -> None:
    """Into the container's log."""
    with contextlib.suppress(OSError):
        print(f"dshpc: {text}", flush=True)
