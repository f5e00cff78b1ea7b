"""A script run with a new root filesystem as its own, in namespaces of its own: what it changes stays.

The container of `builtin` is not used: it writes into a layer that is gone at its end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from dshpc_setup import signals
from dshpc_setup.builtin import filesystem, kernel, one_id
from dshpc_setup.builtin.ids import Ids, become_root
from dshpc_setup.debian.faults import DebianError
from dshpc_setup.machine import Ended, Machine, Say

_QUIET = kernel.NOSUID | kernel.NODEV | kernel.NOEXEC
_NEWNET = 0x40000000  # linux/sched.h
_SAID = 4000

# By asm/unistd.h: sync, fsync, fdatasync, msync, sync_file_range, syncfs
_SYNC: dict[str, tuple[int, tuple[int, ...]]] = {
    "x86_64": (0xC000003E, (162, 74, 75, 26, 277, 306)),
    "aarch64": (0xC00000B7, (81, 82, 83, 227, 84, 267)),
}


@dataclass(frozen=True)
class Script:
    """Run by the root's own /bin/sh. `mounts`: folder of the machine -> place in the root, which is there."""

    text: str
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)


def as_root(machine: Machine, ids: Ids, above: int) -> None:
    """This process becomes root of the container's ids, and ends with the one above it; OSError."""
    become_root(machine, ids)
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != above:
        os._exit(1)
    os.umask(0o022)


def told(question: Callable[[Say], None]) -> Callable[[Say], None]:
    """The question, which tells why where it cannot go on: what `answers` raises as DebianError."""

    def asked(say: Say) -> None:
        try:
            question(say)
        except DebianError as error:
            say(("fault", error.fault, error.what))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            say(("fault", "no-room" if full else "refused", str(error)))

    return asked


def answers(ended: Ended) -> tuple[Any, ...]:
    """What a question said, as it came to its end; DebianError."""
    for item in ended.items:
        if isinstance(item, tuple) and item[0] == "fault":
            raise DebianError(item[1], item[2])
    if ended.state != "present":
        raise DebianError("deadline" if ended.state == "timeout" else "refused", ended.detail or "")
    return ended.items


def run(
    machine: Machine, root: Path, ids: Ids, script: Script, log: Path, deadline_s: float
) -> int:
    """The script's exit code, 128 and the signal where one ended it; what it says goes into the file `log`.

    It has a process table, a network without a way out, /proc and /dev of its own. Nothing is written through
    to the disk meanwhile: a root filesystem that is half done when the power fails is made anew. What it has
    started ends with it, and all of it with this process. DebianError where it does not come that far.
    """
    above = os.getpid()

    def question(say: Say) -> None:
        with open(log, "ab") as said:  # before we are another user
            as_root(machine, ids, above)
            kernel.unshare(kernel.NEWNS | kernel.NEWPID | kernel.NEWUTS | kernel.NEWIPC)
            with contextlib.suppress(
                OSError
            ):  # their number may be limited, and no script needs it
                kernel.unshare(_NEWNET)
            failing, failed = os.pipe()
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    _first(root, ids, script, said.fileno(), failed)
                os._exit(1)
            os.close(failed)
        why = os.read(failing, _SAID)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if why:
            raise DebianError("refused", why.decode(errors="replace"))
        say(code)

    ended = machine.apart({"run": told(question)}, deadline_s=deadline_s)["run"]
    code = int(answers(ended)[0])
    return code if code >= 0 else 128 - code


def _first(root: Path, ids: Ids, script: Script, said: int, failed: int) -> NoReturn:
    """The first process of the namespaces becomes the script's shell."""
    kernel.die_with_parent(signal.SIGKILL)
    try:
        nothing = os.open("/dev/null", os.O_RDONLY)
        _enter(root, ids, script.mounts)
        for handle, number in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(handle, number)
        kernel.set_host_name("localhost")
        kernel.no_new_privileges()
        if ids.way == "single":
            one_id.pretend()
        _no_sync()
        signals.as_at_first()
        os.execve("/bin/sh", ("sh", "-c", script.text), dict(script.environment))
    except OSError as error:
        place = error.filename2 or error.filename or ""
        os.write(failed, f"{error.strerror}: {os.fsdecode(place)}".encode()[:_SAID])
    os._exit(1)


def _no_sync() -> None:
    known = _SYNC.get(os.uname().machine)
    if known is not None:
        one_id.filter_with(one_id.program(*known))


def _enter(root: Path, ids: Ids, mounts: Mapping[str, str]) -> None:
    kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount(str(root), str(root), flags=kernel.BIND)
    os.chdir(root)
    old = f".dshpc-{os.urandom(8).hex()}"
    os.mkdir(old, 0o700)
    kernel.pivot_root(".", old)
    os.chdir("/")
    for folder in ("proc", "dev", "sys", "run", "tmp"):
        os.makedirs(f"/{folder}", 0o755, exist_ok=True)
    kernel.mount("proc", "/proc", "proc", _QUIET)
    filesystem.lay_out_dev(f"/{old}", [], single=ids.way == "single", shm_mib=64)
    kernel.mount("tmpfs", "/tmp", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=1777")
    for source, target in mounts.items():
        os.makedirs(target, 0o755, exist_ok=True)
        kernel.mount(f"/{old}{source}", target, flags=kernel.BIND)
    kernel.unmount(f"/{old}")
    os.rmdir(f"/{old}")


def tail(log: Path, lines: int = 20) -> str:
    """The end of what was said."""
    try:
        text = log.read_text(errors="replace")
    except OSError as error:
        return str(error)
    return "\n".join(text.splitlines()[-lines:])
