"""One change of the running cluster at a time: each of them restarts the daemons or has them read anew."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Literal

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files.storage import open_lock
from dshpc_setup.slurm.paths import Paths

Change = Literal["dshpc reconfigure", "dshpc key rotate", "dshpc backup"]
# Each one's own lock comes first, and after it those of the changes that must not run beside it, so that
# whoever is refused can tell which of them runs
_LOCKS: dict[Change, tuple[str, ...]] = {
    "dshpc reconfigure": ("reconfigure.lock", "key.lock", "backup.lock"),
    "dshpc key rotate": ("key.lock", "backup.lock"),
    "dshpc backup": ("backup.lock",),
}


@contextmanager
def alone(paths: Paths, change: Change) -> Iterator[None]:
    """Nothing else changes the cluster meanwhile; DshpcError (exit code 3) where something does.

    The locks end with the process that holds them, however it ends.
    """
    with ExitStack() as held:
        for name in _LOCKS[change]:
            if not _take(held, paths, name):
                raise _busy(_holder(paths, name, change))
        yield


def _take(held: ExitStack, paths: Paths, name: str) -> bool:
    lock = held.enter_context(open_lock(f"{paths.run}/{name}"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(paths: Paths, name: str, refused: Change) -> Change:
    """Which change holds a lock that `refused` could not take: the first whose own lock is held by others."""
    mine = _LOCKS[refused][: _LOCKS[refused].index(name)]
    for change, (own, *_) in _LOCKS.items():
        if own == name:
            return change
        if own in mine:
            continue
        with ExitStack() as asked:
            if not _take(asked, paths, own):
                return change
    return refused


def _busy(holder: Change) -> DshpcError:
    return DshpcError(
        "The cluster is being changed already.",
        f"A change by {holder} is under way.",
        ("Wait until it has ended, then run this again.",),
        Exit.INCOMPLETE,
    )
