"""Containers started, found, asked and stopped: by their run folder, in which the supervisor writes."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import dshpc_setup
from dshpc_setup.builtin import processes, rights, supervisor, trees, units
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.wanted import (
    ALIVE,
    Failure,
    Record,
    Wanted,
    read_record,
    write_wanted,
)
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.files import atomic, locks
from dshpc_setup.machine import Machine

_POLL_S = 0.01
_KILLED_S = 5.0
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from dshpc_setup.builtin import supervisor; "
)
_PROGRAM += "sys.exit(supervisor.main(sys.argv[1:]))"

State = Literal["starting", "running", "restarting", "exited", "failed", "gone"]
"""`gone`: nobody has started it, or its supervisor or the machine ended before it could say how."""
Outcome = Literal["started", "running", "other"]
"""`running`: it ran already. `other`: another run is starting it at this moment."""


@dataclass(frozen=True)
class Status:
    """How a container is, by its supervisor; `record` is what that has written down last."""

    state: State
    record: Record | None = None

    @property
    def code(self) -> int | None:
        """The exit code, 128 and the signal where one ended it; None where it has not ended."""
        return self.record.code if self.record is not None and self.state == "exited" else None


def find(run: Path) -> Status:
    """How the container with this run folder is; waits for nobody and changes nothing."""
    record = read_record(run)
    if record is None:
        return Status("gone")
    if record.state in ALIVE and not processes.runs(record.supervisor):
        after = read_record(run)  # which it has written in this moment
        if after is None or after.state in ALIVE:
            return Status("gone", record)
        record = after
    return Status(record.state, record)


def start(machine: Machine, wanted: Wanted, deadline_s: float = 150.0) -> tuple[Outcome, Status]:
    """The container, started where it does not run; its program has begun then.

    Raises DshpcError where it does not come up, or not within `deadline_s`; nothing is left of it then.
    """
    run = Path(wanted.run)
    atomic.make_folder(run, mode=0o700)
    with locks.held(run / "start.lock") as ours:
        if not ours:
            return "other", find(run)
        if not _is_free(run / supervisor.LOCK):
            return "running", find(run)
        _end_remains(run)
        for name in ("run.json", supervisor.STOPPED):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(run / name)
        write_wanted(wanted)
        top = str(Path(dshpc_setup.__file__).parents[1])
        program = [sys.executable, "-I", "-c", _PROGRAM, top, str(run)]
        daemon = None
        if wanted.restart:
            user = rights.current_user()
            daemon = units.start(machine, run, program, user, with_machine=True)
        if daemon is None:
            pid = machine.start_daemon(program, log=str(run / "supervisor.log"))
            daemon = processes.of(pid)
        return "started", _up(run, daemon, deadline_s)


def _up(run: Path, daemon: processes.Process | None, deadline_s: float) -> Status:
    until = time.monotonic() + deadline_s
    while True:
        over = daemon is None or not processes.runs(daemon)
        found = find(run)
        if found.state in ("running", "restarting", "exited"):
            return found
        if found.state == "failed" and found.record is not None:
            raise _did_not_start(found.record)
        if over:
            said = (run / "supervisor.log").read_text(errors="replace")[-2000:]
            raise DshpcError(
                "The container was not started: its supervisor ended.", said, ("Run this again.",)
            )
        if time.monotonic() >= until:
            if daemon is not None:
                processes.send(daemon, signal.SIGKILL)
                processes.wait_gone(daemon, _KILLED_S)
            raise DshpcError(
                "The container was not started: it did not come up in time.",
                f"It had {deadline_s:g} s.",
                ("Run this again when the machine has less to do.",),
                Exit.INCOMPLETE,
            )
        time.sleep(_POLL_S)


def _did_not_start(record: Record) -> DshpcError:
    failure = record.failure or Failure("namespaces", 0, "")
    why = {
        "ids": "The ids of its users could not be given to it.",
        "namespaces": "The kernel refused its namespaces.",
        "storage": "Its root filesystem could not be laid out.",
        "root": "Its root filesystem could not be entered.",
        "proc": "Its /proc could not be mounted.",
        "sys": "Its /sys could not be mounted.",
        "dev": "Its /dev could not be made.",
        "mount": "What is to be mounted in it could not be.",
        "files": "Its host name could not be written.",
        "program": "Its first program could not be started.",
    }[failure.step]
    if failure.step == "mount" and failure.number == errno.ELOOP:
        said = (failure.place, "a link on the way can be another user's, and root follows none")
    else:
        said = (failure.place, os.strerror(failure.number) if failure.number else "")
    return DshpcError(
        f"The container {record.name} was not started. {why}",
        ": ".join(filter(None, said)) or "no answer",
        (Fix("See what this user may do", "dshpc doctor", step="look"),),
    )


def stop(run: Path, grace_s: float = 15.0) -> Status:
    """TERM to the container's first process, KILL after `grace_s`; returns when nothing of it is left.

    One that does not run is left as it is. Raises DshpcError where it outlives even that.
    """
    with contextlib.suppress(OSError):
        (run / supervisor.STOPPED).touch(mode=0o600)
    found = find(run)
    record = found.record
    if record is None or found.state not in ALIVE:
        _end_remains(run)
        return found
    processes.send(record.supervisor, signal.SIGTERM)
    if not processes.wait_gone(record.supervisor, grace_s):
        now = read_record(run) or record
        if now.init is not None:
            processes.send(now.init, signal.SIGKILL)  # so that the supervisor can say how it ended
        if not processes.wait_gone(record.supervisor, _KILLED_S):
            processes.send(record.supervisor, signal.SIGKILL)
            processes.wait_gone(record.supervisor, _KILLED_S)
    _end_remains(run)
    return find(run)


def remove(machine: Machine, run: Path, ids: Ids) -> None:
    """The run folder with what the container wrote outside its mounts; DshpcError where it runs."""
    if find(run).state in ALIVE:
        raise DshpcError(
            "The container still runs: its folder cannot be removed.", str(run), ("Stop it first.",)
        )
    _end_remains(run)
    units.forget(machine, run, rights.current_user())
    trees.remove(machine, ids, run)


def _end_remains(run: Path) -> None:
    """The container's first process, should the kernel still be at ending it."""
    record = read_record(run)
    if record is None or record.init is None or processes.runs(record.supervisor):
        return
    processes.send(record.init, signal.SIGKILL)
    if not processes.wait_gone(record.init, _KILLED_S):
        raise DshpcError(
            "What runs in the container does not end.",
            f"Process {record.init.pid} was killed {_KILLED_S:g} s ago.",
            ("Wait for what it does in the kernel to end, or restart the machine.",),
            Exit.INCOMPLETE,
        )


def _is_free(path: Path) -> bool:
    with locks.held(path) as free:
        return free
