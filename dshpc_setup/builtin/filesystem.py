"""What a container sees: its root, its /dev, /proc and /sys, and the mounts that it was given.

Done by its first process, in namespaces of its own. The root is entered before anything is mounted in it:
a link of the root filesystem leads to a place in it, and the machine's root lies under a name that nobody
can have known.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from dshpc_setup.builtin import accounts, kernel, trees
from dshpc_setup.builtin.wanted import Failure, Mount, Step, Storage, Wanted
from dshpc_setup.engine_client import OWNER
from dshpc_setup.files import anchored

_NODES = ("null", "zero", "full", "random", "urandom", "tty")
_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
# As Docker keeps them from a root that is the machine's; a namespace's own root has no right to them
_READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_HIDDEN = ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/latency_stats", "/proc/scsi")
_ACCOUNTS = {"/etc/passwd": (2, 3), "/etc/group": (2,)}
_TTY_GROUP = 5  # Debian's
_OPTIONS = {
    "ro": kernel.READONLY,
    "nosuid": kernel.NOSUID,
    "nodev": kernel.NODEV,
    "noexec": kernel.NOEXEC,
    "noatime": kernel.NOATIME,
    "nodiratime": kernel.NODIRATIME,
    "relatime": kernel.RELATIME,
}
_QUIET = kernel.NOSUID | kernel.NODEV | kernel.NOEXEC


class StoppedError(Exception):
    """A step that could not be done."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


@contextlib.contextmanager
def step(name: Step) -> Iterator[None]:
    """What goes wrong in it, as the failure of this step."""
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or error.strerror or ""
        raise StoppedError(Failure(name, error.errno or 0, os.fsdecode(place))) from None


def build(wanted: Wanted, tell: Callable[[Storage], None]) -> None:
    """This process's root becomes the container's; raises StoppedError."""
    run = Path(wanted.run)
    with step("storage"):
        kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
        tell(_storage(wanted, run))
    with step("mount"):
        by_root = wanted.rootfs.ids.way == "root"
        mounts = [(_held(each.source, by_root=by_root), each) for each in wanted.mounts]
        devices = [(_real(each.source), each.target) for each in wanted.devices]
    resolver = _read("/etc/resolv.conf")
    with step("root"):
        old = f"/.dshpc-{os.urandom(8).hex()}"
        os.mkdir(f"root{old}", 0o700)
        kernel.pivot_root("root", f"root{old}")
        os.chdir("/")
    with step("proc"):
        _folder("/proc")
        kernel.mount("proc", "/proc", "proc", _QUIET)
    with step("sys"):
        _bind(f"{old}/sys", Mount("/sys", "/sys", read_only=True))
    with step("dev"):
        lay_out_dev(old, devices, single=wanted.rootfs.ids.way == "single", shm_mib=wanted.shm_mib)
    with step("mount"):
        for target in wanted.tmpfs:
            _folder(target)
            mode = "1777" if target == "/tmp" else "0755"
            kernel.mount("tmpfs", target, "tmpfs", kernel.NOSUID | kernel.NODEV, f"mode={mode}")
        for place, each in mounts:
            _bind(f"/proc/self/fd/{place}", each)
            os.close(place)
        if wanted.rootfs.ids.way == "root":
            _hide(old)
    with step("root"):
        kernel.unmount(old)
        os.rmdir(old)
    with step("files"):
        kernel.set_host_name(wanted.host_name)
        _put("/etc/hostname", f"{wanted.host_name}\n")
        _put("/etc/hosts", f"127.0.0.1\tlocalhost {wanted.host_name}\n::1\tip6-localhost\n")
        if resolver is not None:
            _put("/etc/resolv.conf", resolver)
        if wanted.rootfs.ids.way == "single" and OWNER not in dict(wanted.environment):
            for path, columns in _ACCOUNTS.items():
                _put(path, accounts.with_one_id(_read(path) or "", columns))


def _storage(wanted: Wanted, run: Path) -> Storage:
    """The folder "root" of the run folder, which is the working folder then, with nothing of before."""
    os.chdir(run)
    for name in ("upper", "work", "copy"):
        trees.remove_here(Path(name))
    for name in ("root", "lower", "upper", "work", "memory"):
        os.makedirs(name, 0o755, exist_ok=True)
    # By short names: a ":" or a "," in a path has a meaning for overlayfs
    kernel.mount(wanted.rootfs.folder, "lower", flags=kernel.BIND)
    # What is mounted here and unmounted again, the overlay holds by itself. Left, it would come along with a
    # home that the project lies in, below the cover of what the cluster keeps for itself, where no path leads
    if _layered(wanted, "."):
        kernel.unmount("lower")
        return "overlay"
    # overlayfs does not write on NFS, and each start would copy the whole to a server
    kernel.mount("tmpfs", "memory", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755")
    for name in ("upper", "work"):
        os.mkdir(f"memory/{name}", 0o755)
    in_memory = _layered(wanted, "memory")
    kernel.unmount("memory")
    if not in_memory:
        trees.copy_here(Path("lower"), Path("copy"))
        kernel.mount("copy", "root", flags=kernel.BIND)
    kernel.unmount("lower")
    return "memory" if in_memory else "copy"


def _layered(wanted: Wanted, above: str) -> bool:
    """Whether the kernel takes a layer in that folder over the root filesystem."""
    options = f"lowerdir=lower,upperdir={above}/upper,workdir={above}/work"
    # userxattr: marks that root of a namespace may write (Linux 5.11)
    for marks in ("", ",userxattr")[wanted.rootfs.ids.way != "root" :]:
        with contextlib.suppress(OSError):
            kernel.mount("overlay", "root", "overlay", 0, options + marks)
            return True
    return False


def _real(path: str) -> str:
    """Where it lies, with links followed as the machine has them; raises FileNotFoundError."""
    return os.path.realpath(path, strict=True)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="surrogateescape")
    except OSError:
        return None


def _folder(path: str) -> None:
    os.makedirs(path, 0o755, exist_ok=True)


def _place(path: str) -> None:
    """A file to mount over."""
    _folder(os.path.dirname(path))
    if not os.path.exists(path):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def _held(path: str, *, by_root: bool) -> int:
    """What lies there, open as a place: what is swapped for a link until it is mounted changes nothing.

    For root no link of others is followed: it would lend what lies in a folder that they may not enter.
    """
    if by_root:
        return anchored.open_file(Path(path), os.O_PATH | os.O_CLOEXEC)
    return os.open(_real(path), os.O_PATH | os.O_CLOEXEC)


def _bind(source: str, wanted: Mount) -> None:
    if stat.S_ISDIR(os.stat(source).st_mode):
        _folder(wanted.target)
    else:
        _place(wanted.target)
    kernel.mount(source, wanted.target, flags=kernel.BIND | kernel.RECURSIVE)
    top = os.path.realpath(wanted.target)
    if wanted.read_only:
        _changed(top, kernel.READONLY)
    elif stat.S_ISDIR(os.stat(top).st_mode):
        # Nothing of the machine's gives rights here; below a home may be mounts that nobody else may look
        # into, and these give none either: no program gets new privileges (launch.py)
        with contextlib.suppress(OSError):
            _changed(top, kernel.NOSUID | kernel.NODEV)


class Mounted(NamedTuple):
    """A line of /proc/self/mountinfo: where, and which of its flags a change has to keep."""

    at: str
    flags: int


def parse_mountinfo(text: str) -> list[Mounted]:
    """In the kernel's order; lines that are none are passed over (proc_pid_mountinfo(5))."""
    found = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) > 5:
            flags = 0
            for option in fields[5].split(","):
                flags |= _OPTIONS.get(option, 0)
            found.append(Mounted(kernel.mount_path(fields[4]), flags))
    return found


def _changed(top: str, more: int) -> None:
    """The mount and each below it with these flags, too: the kernel changes one at a time, and refuses to
    drop its flags."""
    for at, flags in parse_mountinfo(
        Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    ):
        if at == top or at.startswith(top.rstrip("/") + "/"):
            kernel.mount("none", at, flags=kernel.BIND | kernel.REMOUNT | more | flags)


def lay_out_dev(old: str, devices: list[tuple[str, str]], *, single: bool, shm_mib: int) -> None:
    """/dev with what every program looks for there and these (source, target), terminals and shared memory.
    `old` is the machine's root, `single`: there is one id. OSError."""
    _folder("/dev")
    kernel.mount("tmpfs", "/dev", "tmpfs", kernel.NOSUID | kernel.NOEXEC, "mode=0755,size=65536k")
    plain = [(f"/dev/{name}", f"/dev/{name}") for name in _NODES]
    for source, target in plain + devices:
        _place(target)
        kernel.mount(old + source, target, flags=kernel.BIND)
        if os.geteuid() == 0 and not single:
            _keep_rights(target)
    for name, target in _LINKS.items():
        os.symlink(target, f"/dev/{name}")
    options = "newinstance,ptmxmode=0666,mode=0620"
    if not single:
        options += f",gid={_TTY_GROUP}"
    os.mkdir("/dev/pts", 0o755)
    kernel.mount("devpts", "/dev/pts", "devpts", kernel.NOSUID | kernel.NOEXEC, options)
    os.mkdir("/dev/shm", 0o755)
    kernel.mount("tmpfs", "/dev/shm", "tmpfs", _QUIET, f"mode=1777,size={shm_mib}m")


def _keep_rights(node: str) -> None:
    """A device that can be used, and whose owner and mode cannot be changed: it is the machine's own file."""
    with contextlib.suppress(OSError):  # of a user namespace, which has no right to them anyhow
        kernel.mount(
            "none", node, flags=kernel.BIND | kernel.REMOUNT | kernel.READONLY | kernel.NOSUID
        )


def _hide(old: str) -> None:
    for path in _READ_ONLY:
        if os.path.exists(path):
            kernel.mount(path, path, flags=kernel.BIND | kernel.RECURSIVE)
            kernel.mount(
                "none", path, flags=kernel.BIND | kernel.REMOUNT | kernel.READONLY | _QUIET
            )
    for path in _HIDDEN:
        if os.path.isdir(path):
            kernel.mount("tmpfs", path, "tmpfs", kernel.READONLY, "size=0")
        elif os.path.exists(path):
            kernel.mount(f"{old}/dev/null", path, flags=kernel.BIND)


def _put(path: str, text: str) -> None:
    """A file of the container's own; what is there may be a link to one that is not there yet."""
    if os.path.islink(path):
        os.unlink(path)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(path, 0o644)
