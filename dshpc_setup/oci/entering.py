"""The way into an image's root filesystem: namespaces, mounts, the driver's files, and what rights are left.

Each job in an image goes through here, so imports are counted.
"""

from __future__ import annotations

import contextlib
import errno
import os

from dshpc_setup.builtin import kernel

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OWN = "/.dshpc"
OLD, DRIVER, SCRIPT = f"{OWN}/old", f"{OWN}/driver", f"{OWN}/script"
SYSTEM = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp")
FILES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname")
# Where the node's own system is mounted; all else that is a mount there is somebody's data
_NODES_OWN = (
    *SYSTEM, "/etc", "/run", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/config", "/var/lib/dshpc",
)  # fmt: skip
_DATA = ("/var/lib/dshpc/home",)
# Where the driver's files are handed over; others are told by the mounts themselves
_DRIVER_PLACES = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/bin",
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/bin",
)  # fmt: skip
_DRIVER_FILES = ("libcuda.so", "libcudadebugger.so", "libnvcuvid.so", "libnvidia-", "libnvoptix.so")
_DRIVER_PROGRAMS = (
    "nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server",
)  # fmt: skip
_KEPT_RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")


class RefusedError(Exception):
    """Why the image was not entered: at which step, the kernel's number, and the place."""

    def __init__(self, step: str, number: int, place: str = "") -> None:
        super().__init__(step, number, place)
        self.step, self.number, self.place = step, number, place


def own_namespaces() -> None:
    """Namespaces of users and of mounts for this process, in which it is who it was; raises RefusedError."""
    uid, gid = os.geteuid(), os.getegid()
    with _step("namespaces"):
        kernel.unshare(kernel.NEWUSER | kernel.NEWNS)
    with _step("ids"):
        for path, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            kernel.put(f"/proc/self/{path}", text)
    with _step("mounts"):
        kernel.mount("none", "/", flags=kernel.RECURSIVE | kernel.SLAVE)


def refused_here() -> RefusedError | None:
    """Why no image can be entered on this node; None: it can. Tried by a process that ends with it."""
    answer, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            own_namespaces()
        except RefusedError as refused:
            os.write(say, f"{refused.step} {refused.number}".encode())
        finally:
            os._exit(0)
    os.close(say)
    try:
        said = os.read(answer, 100).decode()
    finally:
        os.close(answer)
        os.waitpid(pid, 0)
    step, _, number = said.partition(" ")
    return RefusedError(step, int(number)) if step else None


def enter(root: str, home: str, script: str | None = None) -> None:
    """This process's root becomes the image's, with the node's system and everybody's data in place; raises
    RefusedError. `script`: a file of the node's that is to be seen there as SCRIPT."""
    mounts = read("/proc/self/mountinfo")
    data = folders_of_data(mounts, home)
    own_namespaces()
    with _step("root"):
        kernel.mount(root, root, flags=kernel.BIND)
        os.chdir(root)
        for place in (
            OWN,
            OLD,
        ):  # by no link of the image's: it would lead to the node's own folders
            with contextlib.suppress(FileExistsError):
                os.mkdir(f".{place}", 0o755)
            if os.path.islink(f".{place}"):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)
        kernel.pivot_root(".", f".{OLD}")
        os.chdir("/")
    with _step("mount"):
        for place in SYSTEM:
            if os.path.isdir(OLD + place):
                _bind_folder(place)
        for place in data:
            if os.path.isdir(OLD + place):
                _bind_folder(place)
        for place in FILES:
            with contextlib.suppress(OSError):  # an image may go without
                _bind_file(place)
        if script is not None:
            _bind(OLD + script, SCRIPT)
        _hand_over_driver(places_of_driver(mounts))
    with _step("root"):
        kernel.unmount(OLD)
        kernel.mount(
            "none", "/", flags=kernel.BIND | kernel.REMOUNT | kernel.READONLY | _flags("/")
        )
        # Root of the namespace would have every right there is, over what is the user's own
        kernel.keep_capabilities(_KEPT_RIGHTS)
        kernel.no_new_privileges()


def places_of_driver(mountinfo: str) -> list[str]:
    """The folders in which a library of the driver may lie: an engine mounts each file. Pure."""
    found = dict.fromkeys(_DRIVER_PLACES)
    for line in mountinfo.splitlines():
        at = kernel.mount_path((line.split(" ") + [""] * 5)[4])
        folder, _, name = at.rpartition("/")
        if name.startswith(_DRIVER_FILES):
            found[folder] = None
    return list(found)


def folders_of_data(mountinfo: str, home: str) -> list[str]:
    """What of the node's mounts is people's data: work folder, methods, homes, `mounts`; those above
    first. Pure."""
    found = {home} if home.startswith("/") and home != "/" else set()
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 5:
            at = kernel.mount_path(fields[4])
            if at != "/" and (_below(at, _DATA) or not _below(at, _NODES_OWN)):
                found.add(at)
    tops: list[str] = []
    for at in sorted(found, key=lambda place: (place.count("/"), place)):
        if not _below(at, tops):  # what is mounted below comes along with it
            tops.append(at)
    return tops


def _need_inside(place: str) -> None:
    """A link of the image's may lead back to the node, where nothing is to be made or taken away."""
    if _below(os.path.realpath(place), (OWN,)):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), place)


def _bind_folder(place: str) -> None:
    _need_inside(place)
    if not os.path.isdir(place):
        os.makedirs(place, 0o755)
    kernel.mount(OLD + place, place, flags=kernel.BIND | kernel.RECURSIVE)


def _bind_file(place: str) -> None:
    source = OLD + place
    if not os.path.isfile(source) or not os.path.isdir(os.path.dirname(place)):
        return
    _need_inside(os.path.dirname(place))
    if os.path.islink(place):  # to what is made at a machine's start
        os.unlink(place)
    _bind(source, place)


def _bind(source: str, place: str) -> None:
    if not os.path.exists(place):
        os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    kernel.mount(source, place, flags=kernel.BIND)


def _hand_over_driver(places: Sequence[str]) -> None:
    """NVIDIA's libraries and programs as the node has them: they belong to the driver, not to the image."""
    files = list(_of_driver(OLD, places))
    if not files:
        return
    os.makedirs(DRIVER, 0o755, exist_ok=True)
    kernel.mount("tmpfs", DRIVER, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755,size=1m")
    for source in files:
        target = f"{DRIVER}/{os.path.basename(source)}"
        if os.path.lexists(target):
            continue
        if os.path.islink(source):
            os.symlink(os.path.basename(os.readlink(source)), target)
        else:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o755))
            kernel.mount(source, target, flags=kernel.BIND)


def _of_driver(top: str, places: Sequence[str]) -> Iterator[str]:
    for folder in places:
        with contextlib.suppress(OSError):
            yield from (
                f"{top}{folder}/{name}"
                for name in sorted(os.listdir(top + folder))
                if name.startswith(_DRIVER_FILES) or name in _DRIVER_PROGRAMS
            )


def _flags(place: str) -> int:
    """Those of the mount that the kernel lets nobody drop."""
    seen = os.statvfs(place).f_flag
    flags = seen & (
        kernel.NOSUID | kernel.NODEV | kernel.NOEXEC | kernel.NOATIME | kernel.NODIRATIME
    )
    return flags | (kernel.RELATIME if seen & 4096 else 0)  # ST_RELATIME


def _below(place: str, tops: Sequence[str]) -> bool:
    return any(place == top or place.startswith(f"{top}/") for top in tops)


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or ""
        raise RefusedError(name, error.errno or 0, os.fsdecode(place)) from None


def read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
