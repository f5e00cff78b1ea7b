"""System calls that a container of root's has no use for and could reach the machine with.

Without a user namespace around it, its root is the machine's, less nearly all capabilities. A namespace of
its own would give it those back, for mounts of control groups say, and keyrings are of the machine. It is
what Docker's filter refuses as well, but for what enters an image (oci/entering.py): a namespace of users and
one of mounts. In those alone nothing of the machine can be mounted anew: control groups, /proc and /sys
belong to namespaces that stay refused, and what the container's mounts forbid stays forbidden
(docs/decisions/0069-images-of-jobs.md). In a user's container all this is his own affair.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass

from dshpc_setup.builtin import kernel
from dshpc_setup.builtin.one_id import (
    ALLOW,
    ARCHITECTURE_AT,
    EQUAL,
    ERRNO,
    LOAD,
    NUMBER_AT,
    RETURN,
    filter_with,
)

_AT_LEAST, _ANY_BIT = 0x35, 0x45  # BPF_JMP with BPF_JGE and BPF_JSET by BPF_K
_FIRST_AT = 16  # struct seccomp_data: the first argument, whose lower half comes first
_X32 = 0x40000000  # x86-64's calls of the ABI x32 have this bit
_NAMESPACES = 0x7E020000  # clone(2): CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET
_NOT_FOR_IMAGES = 0xFFFFFFFF & ~(kernel.NEWUSER | kernel.NEWNS)
# mount_setattr; open_tree, move_mount, fsopen, fsconfig, fsmount, fspick: the same everywhere
_NEW_MOUNTS = (442, 428, 429, 430, 431, 432, 433)


@dataclass(frozen=True)
class Calls:
    """Numbers by asm/unistd.h; `refused`: setns, keyctl, add_key, request_key, bpf, userfaultfd,
    perf_event_open, and those of the new mount API."""

    architecture: int  # linux/audit.h
    refused: tuple[int, ...]
    unshare: int
    clone: int
    clone3: int = 435


CALLS = {
    "x86_64": Calls(0xC000003E, (308, 250, 248, 249, 321, 323, 298, *_NEW_MOUNTS), 272, 56),
    "aarch64": Calls(0xC00000B7, (268, 219, 217, 218, 280, 282, 241, *_NEW_MOUNTS), 97, 220),
}


def program(calls: Calls) -> bytes:
    """The filter, as struct sock_filter has it: EPERM for these, for a clone with namespaces, for an
    unshare of
    more than users and mounts and for calls of another ABI; ENOSYS for clone3, whose flags no filter
    sees, and whose callers know clone. Pure."""
    allow, eperm, enosys = "allow", "eperm", "enosys"
    text: list[tuple[int, str | int, str | int, int]] = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 0, eperm, calls.architecture),
        (LOAD, 0, 0, NUMBER_AT),
        (_AT_LEAST, eperm, 0, _X32),
        *((EQUAL, eperm, 0, number) for number in calls.refused),
        (EQUAL, enosys, 0, calls.clone3),
        (EQUAL, 1, 0, calls.clone),
        (EQUAL, 2, allow, calls.unshare),
        (LOAD, 0, 0, _FIRST_AT),
        (_ANY_BIT, eperm, allow, _NAMESPACES),
        (LOAD, 0, 0, _FIRST_AT),
        (_ANY_BIT, eperm, allow, _NOT_FOR_IMAGES),
    ]
    ends = {allow: len(text), eperm: len(text) + 1, enosys: len(text) + 2}

    def jump(at: int, to: str | int) -> int:
        return to if isinstance(to, int) else ends[to] - at - 1

    made = [
        (code, jump(at, yes), jump(at, no), value) for at, (code, yes, no, value) in enumerate(text)
    ]
    made += [(RETURN, 0, 0, ALLOW)]
    made += [(RETURN, 0, 0, ERRNO | number) for number in (errno.EPERM, errno.ENOSYS)]
    return b"".join(struct.pack("=HBBI", *line) for line in made)


def refuse() -> None:
    """For this process, which has no new privileges any more, and all that it starts; raises OSError.

    On a processor that is not known here nothing is done.
    """
    known = CALLS.get(os.uname().machine)
    if known is not None:
        filter_with(program(known))
