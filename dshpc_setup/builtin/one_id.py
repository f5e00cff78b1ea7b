"""A system that believes in many users, run where there is one: calls that change owners or ids do nothing.

Where a user has no range of ids, a container has one user, its root. The kernel refuses every other id there,
and setgroups(2) altogether, and Slurm's daemons end on that. So these calls are answered with success by a
filter (SECCOMP_RETERRNO with 0 of seccomp(2)), as Charliecloud does it: nothing is gained by it, for all
files and processes belong to the caller before and after.
"""

from __future__ import annotations

import ctypes
import os
import struct

from dshpc_setup.builtin import kernel

_SECCOMP, _FILTER = 22, 2  # prctl(2)
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
# BPF_LD|BPF_W|BPF_ABS, BPF_JMP|BPF_JEQ|BPF_K, BPF_RET|BPF_K
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_AT, ARCHITECTURE_AT = 0, 4  # struct seccomp_data

# Architecture by linux/audit.h, and the numbers by asm/unistd.h: chown, fchown, lchown, fchownat; setuid,
# setgid, setreuid, setregid, setgroups, setresuid, setresgid, setfsuid, setfsgid
_CALLS: dict[str, tuple[int, tuple[int, ...]]] = {
    "x86_64": (0xC000003E, (92, 93, 94, 260, 105, 106, 113, 114, 116, 117, 119, 122, 123)),
    "aarch64": (0xC00000B7, (54, 55, 143, 144, 145, 146, 147, 149, 151, 152, 159)),
}


def program(architecture: int, calls: tuple[int, ...]) -> bytes:
    """The filter, as struct sock_filter has it. Pure."""
    lines = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (EQUAL, 0, len(calls) + 1, architecture),
        (LOAD, 0, 0, NUMBER_AT),
        *((EQUAL, len(calls) - at, 0, number) for at, number in enumerate(calls)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERRNO),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def pretend() -> None:
    """For this process, which has no new privileges any more, and all that it starts; raises OSError.

    On a processor that is not known here nothing is done.
    """
    known = _CALLS.get(os.uname().machine)
    if known is None:
        return
    filter_with(program(*known))


def filter_with(lines: bytes) -> None:
    """This filter for this process and all that it starts, beside those that it has; raises OSError."""
    held = ctypes.create_string_buffer(lines, len(lines))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_void_p))

    whole = Program(len(lines) // 8, ctypes.cast(held, ctypes.c_void_p))
    kernel.filter_calls(ctypes.byref(whole), _SECCOMP, _FILTER)
