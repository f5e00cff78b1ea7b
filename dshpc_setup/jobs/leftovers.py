"""What interrupted submissions have left beside the workspaces: copies of inputs, folders put aside.

Copies are held (flock) by the submission that makes them, as far as its host's kernel is the container's;
what was changed within the last hour may be under way all the same, and stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.jobs import folder_lock, removal, safe_open, workspace

_RANDOM = "[0-9a-f]{12}"
_UPLOAD = re.compile(rf"\.incoming-{_RANDOM}")  # in the user's folder: staging.py
_ASIDE = re.compile(rf"\.(?:not-of-[0-9]{{1,10}}|new)-{_RANDOM}")  # in `jobs`: ground.py
_UNDER_WAY_S = 3600.0
_MOST = 1000  # of one kind, and entries of one that are looked at


@dataclass(frozen=True)
class Leftover:
    """`changed`: when it, or something in it, was last changed; `is_upload` or put aside in `jobs`."""

    name: str
    path: str
    changed: float
    is_upload: bool


def find(work: str, uid: int, older_than_s: float) -> list[Leftover]:
    """Those that the calling user may remove, old enough and held by nobody, the oldest first.

    In `jobs` these are his own, where he may write there; root's are all."""
    least, now = max(older_than_s, _UNDER_WAY_S), time.time()
    found = []
    for is_upload, form in ((True, _UPLOAD), (False, _ASIDE)):
        with contextlib.suppress(OSError), _top(work, uid, is_upload) as at:
            top = workspace.of_user(work, uid)
            top = top if is_upload else os.path.dirname(top)
            if not is_upload and not os.access(".", os.W_OK, dir_fd=at, effective_ids=_EFFECTIVE):
                continue
            names = [name for name in os.listdir(at) if form.fullmatch(name)]
            for name in sorted(names)[:_MOST]:
                changed = _changed(name, at, uid)
                if changed is not None and now - changed >= least:
                    found.append(Leftover(name, f"{top}/{name}", changed, is_upload))
    return sorted(found, key=lambda each: each.changed)


def measured(work: str, uid: int, picked: Sequence[Leftover], until: float) -> list[dict[str, Any]]:
    """Each with its size, which is None where there is no time for it (monotonic seconds)."""
    told = []
    for each in picked:
        size = None
        with contextlib.suppress(OSError), _top(work, uid, each.is_upload) as at:
            size = removal.size(each.name, at, until) if time.monotonic() < until else None
        kind = "upload" if each.is_upload else "put-aside"
        told.append(
            {
                "name": each.name,
                "path": each.path,
                "kind": kind,
                "changed": each.changed,
                "bytes": size,
            }
        )
    return told


def remove(
    work: str, uid: int, picked: Sequence[Leftover], until: float
) -> tuple[list[str], list[dict[str, str]]]:
    """The names that are gone, and of those that are not why; what is in neither was not begun."""
    gone: list[str] = []
    failed: list[dict[str, str]] = []
    for each in picked:
        if time.monotonic() > until:
            break
        try:
            with _top(work, uid, each.is_upload) as at:
                _remove(each.name, at)
        except FileNotFoundError:
            pass
        except OSError as error:
            why = error.strerror or str(error)
            failed.append({"name": each.name, "workspace": each.path, "why": why})
            continue
        gone.append(each.name)
    return gone, failed


def _remove(name: str, at: int) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=at)
        return
    with folder_lock.alone(name, at):
        removal.remove(name, at)


_EFFECTIVE = os.access in os.supports_effective_ids


@contextlib.contextmanager
def _top(work: str, uid: int, is_upload: bool) -> Iterator[int]:
    """The user's folder, or `jobs`, open; raises OSError."""
    if is_upload:
        with workspace.user_opened(work, uid) as at:
            yield at
        return
    at = safe_open.walked(work, (workspace.JOBS,))
    try:
        yield at
    finally:
        os.close(at)


def _changed(name: str, at: int, uid: int) -> float | None:
    """When it last was; None where it is not this user's to remove, held, or gone by now."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if uid not in (0, found.st_uid):
            return None
        if not stat.S_ISDIR(found.st_mode):
            return max(found.st_mtime, found.st_ctime)
        with folder_lock.alone(name, at) as here:
            entries = os.listdir(here)[:_MOST]
            inner = [os.stat(each, dir_fd=here, follow_symlinks=False) for each in entries]
        return max(max(each.st_mtime, each.st_ctime) for each in (found, *inner))
    except OSError:
        return None
