"""Does the kernel take device rules from this container: tried with a rule on a group of its own.

Slurm itself goes on where the kernel refuses its program (the result of task/cgroup's
cgroup_g_constrain_apply is not looked at, 24.11), and the job could open everything.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_TRIAL = "dshpc-trial"
_NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
"""Of the system call bpf: it has no function in the C library."""

_PROG_LOAD, _PROG_ATTACH = 5, 8  # linux/bpf.h
_PROG_TYPE_CGROUP_DEVICE = 15
_ATTACH_CGROUP_DEVICE = 6
_REFUSE_ALL = bytes.fromhex("b7000000000000009500000000000000")  # r0 = 0; exit


class _Load(ctypes.Structure):
    _fields_ = (
        ("prog_type", ctypes.c_uint32),
        ("insn_cnt", ctypes.c_uint32),
        ("insns", ctypes.c_uint64),
        ("license", ctypes.c_uint64),
        ("log_level", ctypes.c_uint32),
        ("log_size", ctypes.c_uint32),
        ("log_buf", ctypes.c_uint64),
    )


class _Attach(ctypes.Structure):
    _fields_ = (
        ("target_fd", ctypes.c_uint32),
        ("attach_bpf_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("attach_flags", ctypes.c_uint32),
    )


def try_rule_v1(devices: str) -> None:
    """Write a rule below the mounted hierarchy of the devices controller; OSError where refused."""
    with _group(devices) as group, open(f"{group}/devices.deny", "w", encoding="ascii") as file:
        file.write("c 1:3 rwm")  # /dev/null: the group has no process


def try_rule_v2(tree: str) -> None:
    """Attach a program below the mounted hierarchy; OSError where the kernel refuses it."""
    with _group(tree) as group:
        program = _load()
        try:
            folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                _bpf(_PROG_ATTACH, _Attach(folder, program, _ATTACH_CGROUP_DEVICE, 0))
            finally:
                os.close(folder)
        finally:
            os.close(program)


@contextmanager
def _group(parent: str) -> Iterator[str]:
    """An empty group for the trial; a program goes with it."""
    path = f"{parent}/{_TRIAL}"
    os.makedirs(path, exist_ok=True)
    try:
        yield path
    finally:
        os.rmdir(path)


def _load() -> int:
    """The descriptor of a program that refuses every device."""
    code = ctypes.create_string_buffer(_REFUSE_ALL, len(_REFUSE_ALL))
    licence = ctypes.create_string_buffer(b"GPL")
    request = _Load(
        prog_type=_PROG_TYPE_CGROUP_DEVICE,
        insn_cnt=len(_REFUSE_ALL) // 8,
        insns=ctypes.addressof(code),
        license=ctypes.addressof(licence),
    )
    return _bpf(_PROG_LOAD, request)


def _bpf(command: int, request: ctypes.Structure) -> int:
    number = _NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(f"the system call bpf is not known for {platform.machine()}")
    library = ctypes.CDLL(None, use_errno=True)
    result = int(
        library.syscall(
            ctypes.c_long(number),
            ctypes.c_long(command),
            ctypes.byref(request),
            ctypes.c_ulong(ctypes.sizeof(request)),
        )
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
