"""One process for good: a pid is given again, and all are after a restart of the machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_POLL_S = 0.01
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Process:
    """A process of this machine: `ticks` is when it began, in clock ticks since the machine started
    (proc_pid_stat(5), field 22); `boot` names that start."""

    pid: int
    ticks: int
    boot: str


class Stat(NamedTuple):
    """Of /proc/PID/stat: the state as a letter, the parent, the session, and when it began."""

    state: str
    parent: int
    session: int
    ticks: int


def parse_stat(text: str) -> Stat | None:
    """None for what is no such line. The name of the program, in brackets, may hold anything."""
    fields = text.rpartition(")")[2].split()
    numbers = [fields[at] for at in (1, 3, 19)] if len(fields) > 19 else []
    if not numbers or not all(each.lstrip("-").isdigit() and each.isascii() for each in numbers):
        return None
    return Stat(fields[0], *(int(each) for each in numbers))


def stat_of(pid: int) -> Stat | None:
    """None where there is no such process."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None


def boot_id() -> str:
    """Another one after each start of the machine; "" where the kernel does not tell."""
    try:
        return Path(_BOOT_ID).read_text().strip()
    except OSError:
        return ""


def of(pid: int) -> Process | None:
    """The process that has this pid now; None where there is none."""
    found = stat_of(pid)
    return None if found is None else Process(pid, found.ticks, boot_id())


def runs(process: Process) -> bool:
    """Whether it is there and has not ended: a zombie has."""
    found = stat_of(process.pid)
    if found is None or found.ticks != process.ticks or process.boot != boot_id():
        return False
    return found.state not in ("Z", "X", "x")


def send(process: Process, number: int) -> bool:
    """The signal to this very process; False where it runs no more. Raises PermissionError."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:  # it has ended, or the kernel is older than 5.3
        if not runs(process):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
        return True
    try:
        if not runs(process):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
        return True
    finally:
        os.close(handle)


def wait_gone(process: Process, deadline_s: float) -> bool:
    """Whether it runs no more within that time."""
    until = time.monotonic() + deadline_s
    while runs(process):
        if time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    return True


def descendants(top: int) -> set[int]:
    """The process and all that came of it, by parent and by session."""
    known = {
        int(name): found
        for name in os.listdir("/proc")
        if name.isdigit() and (found := stat_of(int(name))) is not None
    }
    family = {top}
    while True:
        more = {pid for pid, each in known.items() if {each.parent, each.session} & family} - family
        if not more:
            return family
        family |= more
