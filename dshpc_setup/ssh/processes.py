"""What runs below this process, and the terminals that it has: from /proc."""

from __future__ import annotations

import contextlib
import os

_PTS = range(136, 144)  # majors of the terminals in /dev/pts: Documentation/admin-guide/devices.txt


def below(pid: int) -> list[int]:
    """All that descend from it."""
    return list(_descendants(pid))


def tell(text: str) -> None:
    """A line in each terminal of what runs below us."""
    for path in {_terminal(number) for number in _descendants(os.getpid()).values()} - {None}:
        with contextlib.suppress(OSError):
            handle = os.open(str(path), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                if os.fstat(handle).st_uid == os.getuid():
                    os.write(handle, f"\r\ndshpc: {text}\r\n".encode())
            finally:
                os.close(handle)


def _descendants(pid: int) -> dict[int, int]:
    """pid -> the number of its terminal, of all that descend from `pid`."""
    parents: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                parents[int(name)] = (int(fields[1]), int(fields[4]))
    found: dict[int, int] = {}
    grown = True
    while grown:
        grown = False
        for each, (parent, terminal) in parents.items():
            if each not in found and (parent == pid or parent in found):
                found[each] = terminal
                grown = True
    return found


def _terminal(number: int) -> str | None:
    major, minor = (number >> 8) & 0xFFF, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    return f"/dev/pts/{(major - _PTS[0]) * 256 + minor}" if major in _PTS else None
