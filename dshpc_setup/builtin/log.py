"""A container's log: what it says, in a file of at most so many bytes, and the one before it.

Beside each file lies when it had which size, a line a minute at most and one for each start: `since` is
as exact as that, and shows rather too much.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

NAME = "container.log"
_TIMES = ".times"
_MARK_S = 60.0
_NEW = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Log:
    """Written to by the supervisor alone; begun at a start of its container."""

    def __init__(self, run: Path, most: int) -> None:
        self._path, self._most = run / NAME, most
        self._open()

    def _open(self) -> None:
        self._handle = os.open(self._path, _NEW, 0o600)
        self._size = os.fstat(self._handle).st_size
        self._mark()

    def _mark(self) -> None:
        self._marked = time.monotonic()
        with contextlib.suppress(OSError):
            handle = os.open(f"{self._path}{_TIMES}", _NEW, 0o600)
            try:
                os.write(handle, b"%.3f %d\n" % (time.time(), self._size))
            finally:
                os.close(handle)

    def add(self, block: bytes) -> None:
        """A full disk takes the log, and not the container."""
        with contextlib.suppress(OSError):
            if self._size and self._size + len(block) > self._most:
                os.close(self._handle)
                os.replace(self._path, f"{self._path}.1")
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{self._path}{_TIMES}", f"{self._path}.1{_TIMES}")
                self._open()
            elif time.monotonic() - self._marked >= _MARK_S:
                self._mark()
            self._size += os.write(self._handle, block)


def read(run: Path, since: float | None = None) -> tuple[bytes, int]:
    """What is kept of it, and which size the file that is written to had then. `since`: Unix time."""
    full, file = run / f"{NAME}.1", run / NAME
    before, now = _bytes(full), _bytes(file)
    if since is None:
        return before + now, len(now)
    at = _size_at(file, since)
    if at is not None:
        return now[at:], len(now)
    return before[_size_at(full, since) or 0 :] + now, len(now)


def _size_at(file: Path, when: float) -> int | None:
    """Which size it had then; None where it was begun later, or nobody knows."""
    found = None
    for line in _bytes(file.with_name(f"{file.name}{_TIMES}")).splitlines():
        with contextlib.suppress(ValueError):  # half a line: the disk was full
            at, size = line.split()
            if float(at) <= when:
                found = int(size)
    return found


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
