"""A folder that somebody works in, held by a lock on it (flock) that ends with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os

from dshpc_setup.jobs import safe_open

TYPE_CHECKING = False  # imports are counted where a job is submitted
if TYPE_CHECKING:
    from collections.abc import Iterator


def hold(here: int) -> None:
    """Keep an open folder from being `alone`, until it is closed or this process ends."""
    _lock(here, fcntl.LOCK_SH)


@contextlib.contextmanager
def alone(name: str, at: int) -> Iterator[int]:
    """The folder, open; raises BlockingIOError where somebody holds it.

    A file system without locks says nothing of that.
    """
    here = safe_open.folder(name, at)
    try:
        _lock(here, fcntl.LOCK_EX)
        yield here
    finally:
        os.close(here)


def _lock(here: int, kind: int) -> None:
    try:
        fcntl.flock(here, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # there are none
        pass
