"""Resource limits of what runs in a container: as high as GPU jobs want them, and as this user may."""

from __future__ import annotations

import contextlib
import resource

_STACK = 64 << 20
_FILES = 1 << 20
_WANTED = {
    resource.RLIMIT_MEMLOCK: (resource.RLIM_INFINITY, resource.RLIM_INFINITY),
    resource.RLIMIT_STACK: (_STACK, resource.RLIM_INFINITY),
    resource.RLIMIT_NOFILE: (_FILES, _FILES),
}
"""Soft and hard, in bytes and in files: pinned memory without a limit and the stack are what NVIDIA asks for
with its own images; so many files a container of Docker's may open."""


def raise_all() -> None:
    """Raise this process's limits, which all that it starts inherits; never lower one.

    To be called before a user namespace is entered: in one, nobody may raise a hard limit (setrlimit(2)).
    What this user may not have stays at the hard limit that there is.
    """
    for which, (soft, hard) in _WANTED.items():
        now = resource.getrlimit(which)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (_higher(now[0], soft), _higher(now[1], hard)))
            continue
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(which, (_lower(_higher(now[0], soft), now[1]), now[1]))


def _higher(one: int, other: int) -> int:
    return resource.RLIM_INFINITY if resource.RLIM_INFINITY in (one, other) else max(one, other)


def _lower(one: int, other: int) -> int:
    if resource.RLIM_INFINITY in (one, other):
        return other if one == resource.RLIM_INFINITY else one
    return min(one, other)
