"""Which users and groups a container has: the ranges of /etc/subuid, and how they are given to a process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.builtin import kernel
from dshpc_setup.machine import Machine

LEAST_IDS = 65536
"""A system of Debian's has ids up to 65534 (nobody)."""
Way = Literal["root", "mapped", "single"]
_HELPER_S = 10.0


@dataclass(frozen=True)
class Ids:
    """How the ids of a container lie among those of the machine.

    `root`: they are the machine's. `mapped`: the caller has the number that he has on the machine, all others
    below 65537 are `uids` and what follows it, and `gids` likewise. `single`: 0 is the caller, and there is
    no other.
    """

    way: Way
    uids: int | None = None
    gids: int | None = None


def first_range(text: str, name: str, uid: int) -> int | None:
    """The first id of the first range that is large enough, of /etc/subuid or /etc/subgid; None without.

    A line is "NAME:FIRST:COUNT", and NAME may be the number of the user (subuid(5)). Others are passed over.
    """
    largest = largest_range(text, name, uid, LEAST_IDS)
    return None if largest is None else largest[0]


def largest_range(text: str, name: str, uid: int, enough: int = 1 << 32) -> tuple[int, int] | None:
    """First id and size of the user's first range of `enough` ids, or else of the largest one."""
    best: tuple[int, int] | None = None
    for line in text.splitlines():
        who, first, count = ([*line.strip().split(":"), "", ""])[:3]
        if who not in (name, str(uid)) or not who or not _is_number(first, count):
            continue
        found = int(first), int(count)
        if found[1] >= enough:
            return found
        if best is None or found[1] > best[1]:
            best = found
    return best if best is not None and (enough == 1 << 32 or best[1] >= enough) else None


def _is_number(*texts: str) -> bool:
    return all(text.isascii() and text.isdigit() and len(text) < 11 for text in texts)


def map_lines(ids: Ids, own: int, first: int | None) -> tuple[tuple[int, int, int], ...]:
    """(inside, outside, count), as a uid_map or gid_map holds them."""
    if ids.way == "single" or first is None:
        return ((0, own, 1),)
    below = min(own, LEAST_IDS)
    parts = ((0, first, below), (own, own, 1), (own + 1, first + below, LEAST_IDS - below))
    return tuple(part for part in parts if part[2] > 0)


def become_root(machine: Machine, ids: Ids) -> None:
    """This process, which has no threads, becomes root of a user namespace with these ids; OSError.

    For `root` nothing is done. The ranges are given by newuidmap and newgidmap, which look into
    /etc/subuid and /etc/subgid themselves.
    """
    if ids.way == "root":
        return
    uid, gid = os.geteuid(), os.getegid()
    if ids.way == "mapped":
        with _helper(machine, ids, uid, gid):
            kernel.unshare(kernel.NEWUSER)
        os.setgroups([])
    else:
        kernel.unshare(kernel.NEWUSER)
        # A gid_map of one's own is refused else (user_namespaces(7))
        kernel.put("/proc/self/setgroups", "deny")
        kernel.put("/proc/self/uid_map", f"0 {uid} 1")
        kernel.put("/proc/self/gid_map", f"0 {gid} 1")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


@contextlib.contextmanager
def _helper(machine: Machine, ids: Ids, uid: int, gid: int) -> Iterator[None]:
    """A process outside the namespace that is entered meanwhile: it gives the ids once that is done."""
    wait, tell = os.pipe()
    target = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(tell)
            if os.read(wait, 1):
                code = _give(machine, target, ids, (uid, gid))
        finally:
            os._exit(code)
    os.close(wait)
    entered = False
    try:
        yield
        entered = True
    finally:
        with contextlib.suppress(BrokenPipeError):
            os.write(tell, b"." if entered else b"")
        os.close(tell)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code != 0:
        raise PermissionError(1, "newuidmap or newgidmap refused the ids", "newuidmap")


def _give(machine: Machine, target: int, ids: Ids, own: tuple[int, int]) -> int:
    for program, mine, first in (("newuidmap", own[0], ids.uids), ("newgidmap", own[1], ids.gids)):
        numbers = [str(part) for line in map_lines(ids, mine, first) for part in line]
        done = machine.run([program, str(target), *numbers], deadline_s=_HELPER_S)
        if not done.ok:
            os.write(2, done.text.encode() + b"\n")
            return 1
    return 0
