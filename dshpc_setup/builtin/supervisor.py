"""The process that outlives the terminal: it starts the container, keeps its log, and writes down its end.

Three processes: the supervisor; one that makes the namespaces and waits; the container's first process.
Each is killed by the kernel where the one above it ends, and with the container's first process ends
all that runs in it, and the mounts with that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, get_args

from dshpc_setup import signals
from dshpc_setup.builtin import (
    entered,
    filesystem,
    ids,
    kernel,
    limits,
    one_id,
    own_program,
    processes,
    refused_calls,
)
from dshpc_setup.builtin.log import Log
from dshpc_setup.builtin.wanted import (
    Failure,
    Record,
    Step,
    Storage,
    Wanted,
    read_record,
    read_wanted,
    write_record,
)
from dshpc_setup.documents import foreign
from dshpc_setup.files import locks
from dshpc_setup.machine.local import LocalMachine

LOCK = "supervisor.lock"
STOPPED = "stopped"
"""A file in the run folder: nobody wants it to run, whoever starts this program again."""
BUSY = 3
"""The exit code where another supervisor has the run folder."""
_BUILD_S = 120.0  # a copy of the root filesystem, on a slow disk
_LOOK_S = 1.0
_BLOCK = 65536
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 60.0  # before it is started again, doubled each time
_LASTS_S = 10.0  # one that ran so long has not ended soon
_REMAINS_S = 10.0
_OWN = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD)


def main(argv: list[str]) -> int:
    """`supervisor RUN [SOON]`: returns when the container has ended; 3 where another supervisor is there.

    SOON: how often in a row the container has ended soon after its start.
    """
    run = Path(argv[0])
    os.umask(0o022)
    if not run.is_dir():
        return 0
    own_program.protect()
    lock = os.open(run / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if not locks.hold(lock, fcntl.LOCK_EX):
        return BUSY
    if (run / STOPPED).exists():
        before = read_record(run)
        if before is not None and before.state == "restarting":  # the order came as this one began
            write_record(run, replace(before, state="exited"))
        return 0
    soon = _Supervisor(run, read_wanted(run)).live(int(argv[1]) if argv[1:] else 0)
    if soon is not None:  # begun anew, with nothing left of before
        # An order to end that comes meanwhile is kept for who can answer it
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        whole = sys.orig_argv if not argv[1:] else sys.orig_argv[:-1]
        os.execv(sys.executable, [*whole, str(soon)])
    return 0


class _Supervisor:
    def __init__(self, run: Path, wanted: Wanted) -> None:
        self._run, self._wanted = run, wanted
        me = processes.of(os.getpid())
        if me is None:
            raise RuntimeError("/proc does not know this process")
        before = read_record(run)  # of this start, by this process or one that was killed
        if before is not None and before.init is not None:
            processes.wait_gone(before.init, _REMAINS_S)
        self._record = Record(
            wanted.name,
            "starting",
            me,
            environment=wanted.environment,
            capabilities=wanted.capabilities,
            restarts=0 if before is None else before.restarts + 1,
        )
        self._told = b""  # of the report, what is no whole line yet
        self._ordered = False  # to end
        self._log = Log(run, wanted.log_bytes)

    def live(self, soon: int) -> int | None:
        """Until the container has ended and is not to be started again: None; else the next SOON."""
        write_record(self._run, self._record)
        door = entered.door(self._run)
        wake, waking = os.pipe()
        for end in (wake, waking):
            os.set_blocking(end, False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, self._noted)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(waking, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))
        said, saying = os.pipe()
        report, reporting = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                signal.set_wakeup_fd(-1)
                door.close()
                _middle(self._wanted, self._record.supervisor.pid, saying, reporting)
            os._exit(1)
        os.close(saying)
        os.close(reporting)
        began = time.monotonic()
        code = self._watch(child, wake, said, report, door)
        door.close()
        state = self._record.state
        final = replace(self._record, state="exited", code=code)
        if state != "running":
            late: Step = "namespaces" if self._record.init is None else "storage"
            failure = self._record.failure or Failure(late, 0, f"not done within {_BUILD_S:.0f} s")
            final = replace(self._record, state="failed", failure=failure)
        elif self._wanted.restart and not self._ordered:
            soon = 0 if time.monotonic() - began >= _LASTS_S else soon
            write_record(self._run, replace(final, state="restarting"))
            if self._pause(wake, min(_PAUSE_S * 2.0**soon, _LONGEST_PAUSE_S)):
                return min(soon + 1, 16)
        write_record(self._run, final)
        return None

    def _pause(self, wake: int, pause_s: float) -> bool:
        """Whether nobody has ordered the end meanwhile."""
        until = time.monotonic() + pause_s
        while not self._ordered and (left := until - time.monotonic()) > 0:
            if select.select([wake], [], [], left)[0]:
                os.read(wake, _BLOCK)
        return not self._ordered

    def _noted(self, number: int, frame: object) -> None:
        self._ordered = self._ordered or number == signal.SIGTERM

    def _watch(self, child: int, wake: int, said: int, report: int, door: socket.socket) -> int:
        """Until the child has ended: its exit code."""
        until = time.monotonic() + _BUILD_S
        poll = select.poll()
        for stream in (wake, said, report, door.fileno()):
            poll.register(stream, select.POLLIN)
        passed_on = False
        while True:
            for stream, _ in poll.poll(_LOOK_S * 1000):
                if stream == door.fileno():
                    entered.let_in(door, self._record)
                    continue
                block = os.read(stream, _BLOCK)
                if stream == said:
                    self._log.add(block)
                elif stream == report:
                    self._hear(block)
                if not block:
                    poll.unregister(stream)
            if self._record.state == "starting" and time.monotonic() >= until:
                os.kill(child, signal.SIGKILL)
            if self._ordered and not passed_on and self._record.state == "running":
                passed_on = self._pass_on(signal.SIGTERM)
            pid, status = -1, 0
            while pid not in (0, child):  # others have let somebody in
                pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                self._rest(said, report)
                return _code_of(status)

    def _rest(self, said: int, report: int) -> None:
        for stream, take in ((said, self._log.add), (report, self._hear)):
            os.set_blocking(stream, False)
            with contextlib.suppress(BlockingIOError):
                block = b"."
                while block:  # its end says something, too: that the program had begun
                    block = os.read(stream, _BLOCK)
                    take(block)

    def _pass_on(self, number: int) -> bool:
        init = self._record.init
        if init is not None:
            processes.send(init, number)
        return True

    def _hear(self, block: bytes) -> None:
        """Lines of JSON; the end without a failure says that the program runs."""
        self._told += block
        *lines, self._told = self._told.split(b"\n")
        for line in lines:
            self._understand(foreign.value(line))
        record = self._record
        if not block and record.state == "starting" and record.init and not record.failure:
            self._record = replace(record, state="running")
            write_record(self._run, self._record)

    def _understand(self, told: Mapping[str, Any]) -> None:
        if "init" in told:
            self._record = replace(self._record, init=processes.of(int(told["init"])))
            write_record(self._run, self._record)
        elif "storage" in told:
            storage: Storage = next(x for x in get_args(Storage) if x == told["storage"])
            self._record = replace(self._record, storage=storage)
        elif "failure" in told:
            name, number, place = told["failure"]
            at: Step = next(x for x in get_args(Step) if x == name)
            self._record = replace(self._record, failure=Failure(at, int(number), str(place)))


def _code_of(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _middle(wanted: Wanted, above: int, saying: int, reporting: int) -> NoReturn:
    """The namespaces; then this process waits for the container's first one and ends as that does."""
    for number in _OWN:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is for the container alone
    limits.raise_all()
    try:
        with filesystem.step("ids"):
            ids.become_root(LocalMachine(), wanted.rootfs.ids)
        kernel.die_with_parent(signal.SIGKILL)
        if os.getppid() != above:
            os._exit(1)
        with filesystem.step("namespaces"):
            kernel.unshare(kernel.NEWNS | kernel.NEWPID | kernel.NEWUTS | kernel.NEWIPC)
            with contextlib.suppress(OSError):  # Linux 4.6
                kernel.unshare(kernel.NEWCGROUP)
            living, alive = os.pipe()
            init = os.fork()
    except filesystem.StoppedError as stopped:
        _tell_failure(reporting, stopped.failure)
        os._exit(1)
    if init == 0:
        os.close(alive)
        with contextlib.suppress(BaseException):
            _first(wanted, living, saying, reporting)
        os._exit(1)
    _tell(reporting, {"init": init})
    for end in (living, saying, reporting):
        os.close(end)
    os._exit(_code_of(os.waitpid(init, 0)[1]))


def _first(wanted: Wanted, living: int, saying: int, reporting: int) -> NoReturn:
    """The container's first process: its root is made, then it becomes the program."""
    kernel.die_with_parent(signal.SIGKILL)
    # The parent is in another namespace: whether it has ended before is told by its end of a pipe
    if select.select([living], [], [], 0)[0]:
        os._exit(1)
    signals.as_at_first()
    os.setsid()
    try:
        filesystem.build(wanted, lambda storage: _tell(reporting, {"storage": storage}))
        with filesystem.step("program"):
            nothing = os.open("/dev/null", os.O_RDONLY)
            for handle, number in ((nothing, 0), (saying, 1), (saying, 2)):
                os.dup2(handle, number)
            kernel.keep_capabilities(wanted.capabilities)
            kernel.no_new_privileges()
            if wanted.rootfs.ids.way == "single":
                one_id.pretend()
            if wanted.rootfs.ids.way == "root":
                refused_calls.refuse()
            kernel.die_with_parent(signal.SIGKILL)
            os.execve(wanted.argv[0], wanted.argv, dict(wanted.environment))
    except filesystem.StoppedError as stopped:
        _tell_failure(reporting, stopped.failure)
    os._exit(1)


def _tell(reporting: int, value: Mapping[str, object]) -> None:
    os.write(reporting, json.dumps(value).encode() + b"\n")


def _tell_failure(reporting: int, failure: Failure) -> None:
    _tell(reporting, {"failure": [failure.step, failure.number, failure.place]})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
