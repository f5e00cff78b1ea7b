"""Start a program under a seccomp filter that it and all that it starts keep: Slurm's node daemon, and jobs.

In the isolation tier `enforced` the container may remount what is mounted, and its root has SYS_ADMIN,
which the daemon needs for each job's device rules (its step daemons write them). A job needs neither, root's
as little as a user's: what is left to SYS_ADMIN behind this filter is to write control groups. It holds also
where the container was started by hand, under the engine's own profile.

Imports are counted: every start of slurmd goes through here.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Mapping, Sequence

# By the architecture as the kernel tells a filter (linux/audit.h, all of them little-endian): numbers of
# system calls. A machine runs programs of its narrower sibling, too
_NAMES = (
    "mount", "umount2", "pivot_root", "unshare", "setns", "add_key", "request_key", "keyctl",
    "perf_event_open", "bpf", "clone",
)  # fmt: skip
_GENERIC = (40, 39, 41, 97, 268, 217, 218, 219, 241, 280, 220)
_NUMBERS: Mapping[int, Sequence[int]] = {
    0xC000003E: (
        165,
        166,
        155,
        272,
        308,
        248,
        249,
        250,
        298,
        321,
        56,
    ),  # x86_64, and x32 with its bit
    0x40000003: (21, 52, 217, 310, 346, 286, 287, 288, 336, 357, 120),  # i386
    0xC00000B7: _GENERIC,  # aarch64
    0x40000028: (21, 52, 218, 337, 375, 309, 310, 311, 364, 386, 120),  # arm
    0xC00000F3: _GENERIC,  # riscv64
    0xC0000015: (21, 52, 203, 282, 350, 269, 270, 271, 319, 361, 120),  # ppc64le
}
_MACHINES: Mapping[str, Sequence[int]] = {
    "x86_64": (0xC000003E, 0x40000003),
    "aarch64": (0xC00000B7, 0x40000028),
    "riscv64": (0xC00000F3,),
    "ppc64le": (0xC0000015,),
}
# open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, open_tree_attr: as clone3, these
# have one number everywhere
_NEW_MOUNTS = (428, 429, 430, 431, 432, 433, 442, 467)
_CLONE3 = 435  # its flags lie in memory, where no filter looks; the C library goes on with clone
_X32_BIT = 0x40000000
_CLONE_NEW = 0x7E020000  # every kind of namespace, as in seccomp.py
_EPERM, _ENOSYS = 1, 38

_LOAD, _JUMP, _EQUAL, _ANY_BIT, _AND, _RETURN = (
    0x20,
    0x05,
    0x15,
    0x45,
    0x54,
    0x06,
)  # linux/bpf_common.h
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16  # struct seccomp_data
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

Step = tuple[int, int, int, int]  # struct sock_filter: code, jump if true, if false, constant


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def main(argv: Sequence[str]) -> int:
    """Become the program of these words; `--bpf` before it leaves it bpf(2)."""
    words = list(argv)
    keeps_bpf = words[:1] == ["--bpf"]
    words = words[1:] if keeps_bpf else words
    try:
        install(program(platform.machine(), keeps_bpf=keeps_bpf))
    except OSError as error:
        why = f"no seccomp filter could be set: {error}"
    else:
        try:
            os.execvp(words[0], words)
        except OSError as error:
            why = error.strerror or str(error)
    print(f"dshpc: {words[0]} cannot be started: {why}", file=sys.stderr)
    return 1


def program(machine: str, *, keeps_bpf: bool) -> bytes:
    """The filter for a machine, as `uname -m` names it; OSError where its calls are not known."""
    architectures = _MACHINES.get(machine)
    if architectures is None:
        raise OSError(f"the system calls of {machine} are not known")
    steps: list[Step] = [(_LOAD, 0, 0, _ARCHITECTURE_AT)]
    for architecture in architectures:
        block = _block(architecture, keeps_bpf)
        steps += [(_EQUAL, 1, 0, architecture), (_JUMP, 0, 0, len(block)), *block]
    steps.append((_RETURN, 0, 0, _ERRNO | _ENOSYS))  # of no architecture that this machine has
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _block(architecture: int, keeps_bpf: bool) -> list[Step]:
    """What is said of a call of that architecture."""
    numbers = dict(zip(_NAMES, _NUMBERS[architecture], strict=True))
    clone = numbers.pop("clone")
    if keeps_bpf:
        del numbers["bpf"]
    steps: list[Step] = [(_LOAD, 0, 0, _NUMBER_AT)]
    if architecture == 0xC000003E:
        steps.append((_AND, 0, 0, ~_X32_BIT & 0xFFFFFFFF))
    for number in (*numbers.values(), *_NEW_MOUNTS):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _EPERM)]
    steps += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    steps += [(_EQUAL, 1, 0, clone), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_LOAD, 0, 0, _FIRST_ARGUMENT_AT), (_ANY_BIT, 0, 1, _CLONE_NEW)]
    return [*steps, (_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)]


def install(text: bytes) -> None:
    """For this process and all that it starts, for good; OSError where the kernel refuses it."""
    steps = ctypes.create_string_buffer(text, len(text))
    filters = _Program(len(text) // 8, ctypes.addressof(steps))
    library = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    for order in (
        (_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero),
        (_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.byref(filters)),
    ):
        if library.prctl(*order, zero, zero) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
