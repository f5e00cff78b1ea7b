"""One run at a time: a lock file that only its owner can hold, and who holds it.

The kernel drops the lock when its process ends, however that ends. What stands in the file is the
number that its last holder wrote: it may be old. Who holds it now, the kernel knows.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dshpc_setup.errors import DshpcError
from dshpc_setup.files.anchored import anchored
from dshpc_setup.files.atomic import write_error
from dshpc_setup.project import trust, writers

_MODE = 0o600  # whoever may open a file may hold its lock
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LOCKS = "/proc/locks"


@contextlib.contextmanager
def held(path: Path, where: str, why: str, owner: tuple[int, int] | None = None) -> Iterator[None]:
    """Hold the file for one run; raises DshpcError that names the process that holds it.

    `where` is what is worked on ("in DIR"), `why` says in a sentence what two runs would do to it.
    """
    try:
        with anchored(path.parent) as at:
            handle = os.open(at / path.name, os.O_RDWR | os.O_CREAT | _OPEN, _MODE)
    except OSError as error:
        raise write_error(error, path) from None
    try:
        _make_private(handle, path, owner)
        _take(handle, where, why)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def held_by_another(path: Path, where: str, why: str) -> Iterator[None]:
    """The same in another user's folder, where nothing is made or written: without a file, no lock."""
    try:
        with anchored(path.parent) as at:
            handle = os.open(at / path.name, os.O_RDONLY | _OPEN)
    except OSError:
        yield
        return
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            with contextlib.suppress(OSError):  # a file system that locks only what can be written
                _take(handle, where, why)
        yield
    finally:
        os.close(handle)


def _make_private(handle: int, path: Path, owner: tuple[int, int] | None) -> None:
    """Ours alone, also where an earlier version made it readable; raises DshpcError for another's."""
    seen = os.fstat(handle)
    ours = {*trust.ours(), *(owner or ())[:1]}
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1 or seen.st_uid not in ours:
        raise DshpcError(
            f"{path} is not a lock file of ours.",
            f"It belongs to {writers.user_name(seen.st_uid)}, or it is a link or no plain file.",
            (f"See what it is: ls -l {path}", "Then remove it, and run again."),
        )
    try:
        if owner is not None:
            os.fchown(handle, *owner)
        if seen.st_uid == os.geteuid() or os.geteuid() == 0:
            os.fchmod(handle, _MODE)
    except PermissionError:  # a file system with owners and modes of its own (WSL's /mnt/c)
        pass
    except OSError as error:
        raise write_error(error, path) from None


def _take(handle: int, where: str, why: str) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise DshpcError(
            f"Another run{_who(handle)} is at work {where}.",
            why,
            ("Wait until it has ended, then run again.",),
        ) from None


def _who(handle: int) -> str:
    """ " (process 12)", of another user with his name; "" where the kernel does not say who it is."""
    holders = [number for number in _in_kernel(handle) if _has_open(number, handle)]
    if not holders:
        return ""
    number = holders[0]
    try:
        uid = os.stat(f"/proc/{number}").st_uid
    except OSError:
        return ""
    whose = "" if uid == os.geteuid() else f" of {writers.user_name(uid)}"
    return f" (process {number}{whose})"


def _in_kernel(handle: int) -> list[int]:
    """Processes that hold a flock on a file of this inode number; [] where the system does not say.

    Which device it is on is not compared: btrfs and overlayfs give another number there.
    """
    inode = str(os.fstat(handle).st_ino)
    try:
        with open(_LOCKS, encoding="ascii", errors="replace") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    # "1: FLOCK ADVISORY WRITE 1234 fd:01:131090 0 EOF"; with "->" behind the number it only waits
    return [
        int(row[4])
        for row in rows
        if len(row) > 5 and row[1] == "FLOCK" and row[5].rpartition(":")[2] == inode
        and row[4].isdecimal()
    ]  # fmt: skip


def _has_open(number: int, handle: int) -> bool:
    """Whether that process has this very file open; of another user's it cannot be seen: then no."""
    ours = os.fstat(handle)
    try:
        names = os.listdir(f"/proc/{number}/fd")
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(f"/proc/{number}/fd/{name}"), ours):
                return True
    return False
