"""Running a command with a deadline that holds, even where the driver hangs in the kernel.

`subprocess.run(timeout=)` waits without bound after its kill: a child in uninterruptible sleep, or
a grandchild that holds the pipe, would hang us with it. Here the streams go to files that nobody
can hold against us, the child is killed with its whole process group, and one that does not die is
left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from dshpc_setup import signals
from dshpc_setup.machine import CommandResult, since_ms

if TYPE_CHECKING:
    from dshpc_setup.facts import State

_MOST_BYTES = 64 << 20  # of a stream; what prints more than that will not stop
_MOST_SHOWN = 1 << 30  # where somebody takes the lines: a build prints many
_MOST_LINE = 1 << 16
_KEPT_BYTES = 4096  # of one that did not
_POLL_S = 0.002
_POLL_MAX_S = 0.05
_REAP_S = 0.25  # how long a killed child may take to go before it is abandoned


def run(
    argv: Sequence[str],
    *,
    deadline_s: float,
    env: Mapping[str, str],
    stdin: bytes | str | None = None,
    cwd: str | None = None,
    on_line: Callable[[str], None] | None = None,
) -> CommandResult:
    """See `Machine.run`; `env` is the whole environment of the child."""
    started = time.monotonic()
    command = tuple(argv)
    with _scratch() as out, _scratch() as err:
        feed = _feed(stdin)
        child = None
        try:
            with signals.held_back():
                child = subprocess.Popen(
                    command,
                    stdin=feed if feed is not None else subprocess.DEVNULL,
                    stdout=out,
                    stderr=out if on_line else err,
                    cwd=cwd,
                    env=dict(env),
                    start_new_session=not _may_ask(command),
                )
        except (FileNotFoundError, NotADirectoryError) as error:  # a file may stand on the PATH
            return CommandResult(command, "absent", None, "", str(error), since_ms(started))
        except OSError as error:
            return CommandResult(command, "denied", None, "", str(error), since_ms(started))
        except BaseException:  # Ctrl-C as it began
            if child is not None:
                _kill(child)
            raise
        finally:
            if feed is not None:
                feed.close()
        lines = _Lines(out, on_line)
        try:
            state = _wait(child, started + deadline_s, lines, err)
        except BaseException:  # Ctrl-C, or on_line gave up: leave no process behind
            _kill(child)
            raise
        lines.pump(last=True)
        most = _KEPT_BYTES if state == "error" else _MOST_BYTES
        stdout, stderr = _text(out, most), _text(err, most)
        if state == "error":
            told = _MOST_BYTES if on_line is None else _MOST_SHOWN
            stderr = f"it printed more than {told >> 20} MiB, and was ended\n{stderr}"
        code = child.returncode if state == "present" else None
        return CommandResult(command, state, code, stdout, stderr, since_ms(started))


def _scratch() -> IO[bytes]:
    """A file without a name; in memory where no folder can be written."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        if not hasattr(os, "memfd_create"):
            raise
        return os.fdopen(os.memfd_create("dshpc"), "w+b")


def _may_ask(command: Sequence[str]) -> bool:
    """Whether it is a sudo or an ssh that asks for a password: that takes a terminal, so our own session."""
    program = os.path.basename(command[0])
    if program == "ssh":
        return "BatchMode=yes" not in command
    return program == "sudo" and "-n" not in command[1:2]


def _wait(child: subprocess.Popen[bytes], until: float, lines: _Lines, errors: IO[bytes]) -> State:
    """How it ended: by itself, at its deadline, or (`error`) because it never stopped printing."""
    pause = _POLL_S
    with _Exit(child.pid) as exit_of_child:
        while child.poll() is None:
            if time.monotonic() >= until:
                _kill(child)
                return "timeout"
            if lines.are_too_many() or _size(errors) > _MOST_BYTES:
                _kill(child)
                return "error"
            lines.pump()
            exit_of_child.wait(min(pause, max(0.0, until - time.monotonic())))
            pause = min(pause * 1.5, _POLL_MAX_S)
    return "present"


class _Exit:
    """The end of a process, as something to wait for: at once on Linux, else only looked for."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._handle: int | None = None

    def __enter__(self) -> _Exit:
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # a kernel before 5.3, a seccomp profile
                self._handle = os.pidfd_open(self._pid)
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle is not None:
            os.close(self._handle)

    def wait(self, at_most_s: float) -> None:
        if self._handle is None:
            time.sleep(at_most_s)
            return
        ended = select.poll()
        ended.register(self._handle, select.POLLIN)
        ended.poll(at_most_s * 1000)


def _kill(child: subprocess.Popen[bytes]) -> None:
    for number, grace in ((signal.SIGTERM, 0.1), (signal.SIGKILL, _REAP_S)):
        # Suppressed: gone, sudo's (root's, not ours to end), or in our own group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        until = time.monotonic() + grace
        while time.monotonic() < until:
            if child.poll() is not None:
                break
            time.sleep(0.005)
    # Still there: in uninterruptible sleep. Waiting for it would hang us as well.
    child.returncode = child.returncode if child.returncode is not None else -signal.SIGKILL


class _Lines:
    """Hands over the lines that have come since the last look."""

    def __init__(self, stream: IO[bytes], on_line: Callable[[str], None] | None) -> None:
        self._stream, self._on_line = stream, on_line
        self._offset, self._rest = 0, b""

    def are_too_many(self) -> bool:
        return _size(self._stream) > (_MOST_BYTES if self._on_line is None else _MOST_SHOWN)

    def pump(self, last: bool = False) -> None:
        if self._on_line is None:
            return
        # pread: the child's own writing position, shared with us, must not move
        while block := os.pread(self._stream.fileno(), 1 << 20, self._offset):
            self._offset += len(block)
            *whole, self._rest = (self._rest + block).split(b"\n")
            if len(self._rest) > _MOST_LINE:  # it would be read into memory without an end
                whole, self._rest = [*whole, self._rest], b""
            for line in whole:
                self._on_line(line.decode(errors="replace").rstrip("\r"))
            if not last:  # the deadline is looked at in between
                return
        if last and self._rest:
            self._on_line(self._rest.decode(errors="replace").rstrip("\r"))


def _feed(stdin: bytes | str | None) -> IO[bytes] | None:
    if stdin is None:
        return None
    file = _scratch()  # closed by the caller, once the child has it
    file.write(stdin.encode() if isinstance(stdin, str) else stdin)
    file.seek(0)
    return file


def _text(stream: IO[bytes], most: int) -> str:
    stream.seek(0)
    return stream.read(most).decode(errors="replace")


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size
