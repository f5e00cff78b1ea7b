"""Locks between processes: flock, which ends with the process that holds it, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_LOOK_S = 0.05  # between two tries


def hold(handle: int, how: int, deadline_s: float = 0.0) -> bool:
    """Whether the lock of an open file is ours within that time; true where its file system has none.

    `how` is fcntl.LOCK_EX or LOCK_SH.
    """
    end = time.monotonic() + deadline_s
    while True:
        try:
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_S)
        except OSError:  # such as ENOLCK of a network's file system
            return True
        else:
            return True


@contextlib.contextmanager
def held(path: Path, deadline_s: float = 0.0) -> Iterator[bool]:
    """Whether the lock of a file is ours, to the end of the block; `hold` says within which time.

    The file is made where there is none, for this user alone. Raises OSError, also where it is a link.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        yield hold(handle, fcntl.LOCK_EX, deadline_s)
    finally:
        os.close(handle)
