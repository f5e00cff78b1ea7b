"""A program on a terminal of its own, as a terminal's window runs one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_BLOCK = 1 << 16
_TYPE_S = 5.0  # for a program that does not read what is typed
_HANG_UP_S = 8.0
_LOOK_S = 0.05
_KILLED = 128


@dataclass(frozen=True)
class Size:
    rows: int = 24
    columns: int = 80

    @property
    def packed(self) -> bytes:
        return struct.pack("HHHH", self.rows, self.columns, 0, 0)


class Child:
    """The program; its methods may be called by several threads."""

    def __init__(self, pid: int, end: int) -> None:
        self._pid, self._end = pid, end
        self._lock = threading.Lock()
        self._code: int | None = None
        self._is_closed = False

    def read(self) -> bytes:
        """What it has printed since, as soon as there is some; nothing once it has ended."""
        try:
            select.select([self._end], [], [])
            return os.read(self._end, _BLOCK)
        except (OSError, ValueError):  # Linux says EIO once nobody has the other side open
            return b""

    def type(self, keys: bytes) -> bool:
        """Whether it has taken them all, within some seconds."""
        until = time.monotonic() + _TYPE_S
        while keys and (left := until - time.monotonic()) > 0:
            try:
                if select.select([], [self._end], [], left)[1]:
                    keys = keys[os.write(self._end, keys) :]
            except BlockingIOError:
                continue
            except (OSError, ValueError):
                return False
        return not keys

    def resize(self, size: Size) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._end, termios.TIOCSWINSZ, size.packed)

    def code(self) -> int | None:
        """Its exit code once it has ended, 128 + N where signal N ended it."""
        with self._lock:
            if self._code is None:
                try:
                    pid, status = os.waitpid(self._pid, os.WNOHANG)
                except ChildProcessError:
                    self._code = _KILLED
                else:
                    if pid:
                        code = os.waitstatus_to_exitcode(status)
                        self._code = code if code >= 0 else _KILLED - code
            return self._code

    def hang_up(self) -> None:
        """As a terminal does whose window is closed; what does not heed it is killed."""
        self._send(signal.SIGHUP)
        until = time.monotonic() + _HANG_UP_S
        while self.code() is None and time.monotonic() < until:
            time.sleep(_LOOK_S)
        self._send(signal.SIGKILL)

    def close(self) -> None:
        """Once it has ended, and nothing of it is read any more."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._end)

    def _send(self, number: signal.Signals) -> None:
        with self._lock:
            if self._code is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, number)


def start(argv: Sequence[str], env: Mapping[str, str], size: Size) -> Child:
    """Begin it, in a session whose terminal is the new one; OSError where it cannot be."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size.packed)
        os.set_blocking(ours, False)
        # The leader of a session gets as its terminal the first one that it opens
        opened = (os.POSIX_SPAWN_OPEN, 0, os.ttyname(theirs), os.O_RDWR, 0)
        pid = os.posix_spawnp(
            argv[0],
            list(argv),
            dict(env),
            file_actions=[
                opened,
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD],
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return Child(pid, ours)
