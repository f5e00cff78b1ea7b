"""The kernel's calls that Python lacks before 3.12: namespaces, mounts, rights of a process.

Each raises OSError with the kernel's number and the place. The numbers stand in include/uapi/linux
(sched.h, mount.h, prctl.h, capability.h).
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID = 0x10000000, 0x20000000

READONLY, NOSUID, NODEV, NOEXEC, REMOUNT = 1, 2, 4, 8, 32
NOATIME, NODIRATIME, BIND, RECURSIVE = 1024, 2048, 4096, 16384
PRIVATE, SLAVE, RELATIME = 1 << 18, 1 << 19, 1 << 21
DETACH = 2  # umount2(2)

_PDEATHSIG, _CAPBSET_READ, _CAPBSET_DROP, _NO_NEW_PRIVS = 1, 23, 24, 38
_CLOSE_RANGE = 436  # everywhere, since Linux 5.9
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}

CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "SETFCAP": 31,
}
"""Capabilities that a container may be given, by the names that Docker has for them."""


@functools.cache
def _library() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, place: str = "") -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), place)
    return result


def unshare(flags: int) -> None:
    """New namespaces for this process; with NEWPID for its children."""
    _checked(_library().unshare(flags), "unshare")


def setns(handle: int, kind: int) -> None:
    """Into the namespace that is open as `handle`; into a NEWPID one its children alone."""
    _checked(_library().setns(handle, kind), "setns")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    _checked(
        _library().mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            os.fsencode(options) or None,
        ),
        target,
    )


def unmount(target: str) -> None:
    """Takes the mount out of sight, with those below it, also where it is in use."""
    _checked(_library().umount2(os.fsencode(target), DETACH), target)


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2), which the C library does not offer."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"the number of pivot_root is not known for {os.uname().machine}", new)
    _checked(
        _library().syscall(ctypes.c_long(number), os.fsencode(new), os.fsencode(old)),
        new,
    )


def close_from(first: int) -> None:
    """Close each file of this process from that number on."""
    most = ctypes.c_uint(0xFFFFFFFF)
    done = _library().syscall(
        ctypes.c_long(_CLOSE_RANGE), ctypes.c_uint(first), most, ctypes.c_uint(0)
    )
    if done < 0:  # an older kernel
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def set_host_name(name: str) -> None:
    """Of this process's UTS namespace."""
    raw = os.fsencode(name)
    _checked(_library().sethostname(raw, ctypes.c_size_t(len(raw))), "host name")


def die_with_parent(number: int) -> None:
    """This signal where the parent ends. A change of rights takes it back: it comes after those."""
    _prctl(_PDEATHSIG, number)


def no_new_privileges() -> None:
    """No program that is started from here has more rights than this process, whatever its file says."""
    _prctl(_NO_NEW_PRIVS, 1)


def keep_capabilities(names: tuple[str, ...]) -> None:
    """What root can still be given from here on; each other one is gone for good, in children too."""
    kept = {CAPABILITIES[name] for name in names}
    for number in range(64):
        if _library().prctl(_CAPBSET_READ, _long(number), _long(0), _long(0), _long(0)) < 0:
            return  # the kernel knows no more of them
        if number not in kept:
            _prctl(_CAPBSET_DROP, number)


def _prctl(what: int, value: int) -> None:
    _checked(_library().prctl(what, _long(value), _long(0), _long(0), _long(0)), "prctl")


def _long(value: int) -> ctypes.c_ulong:
    return ctypes.c_ulong(value)


def filter_calls(program: Any, option: int, mode: int) -> None:
    """A filter of system calls for this process and all that it starts (prctl(2), PR_SET_SECCOMP)."""
    _checked(_library().prctl(option, _long(mode), program, _long(0), _long(0)), "seccomp")


def put(path: str, text: str) -> None:
    """Into a file of the kernel's, which is there; in one write, as it asks."""
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def mount_path(text: str) -> str:
    r"""A path of mountinfo, in which a blank is "\040"."""
    first, *rest = text.split("\\")
    return first + "".join(
        chr(int(part[:3], 8)) + part[3:] if part[:3].isdigit() else "\\" + part for part in rest
    )
