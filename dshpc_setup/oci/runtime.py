"""What oci.conf names as its runtime: this process gets an image's root filesystem and becomes the job's
program.

    image-run BUNDLE WORD...              in the image of a bundle
    image-run BUNDLE --words TEXT         words that Slurm could not hand over as they are: see `quoted`
    image-run --environment FILE ...      with the variables of a file: Slurm's runtimes get those of its
    daemon image-run --try                       whether this node lets anybody into an image

A namespace of users and one of mounts, and no other: what the job starts stays in sight of Slurm, and
this process
stays the same one, so that exit codes, signals and accounting are those of any job. The user is who he
was; root of the image is nobody. Each job in an image goes through here, so imports are counted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal

from dshpc_setup.builtin import kernel
from dshpc_setup.documents import foreign

TYPE_CHECKING = False  # importing typing would cost as much as all of the rest
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping, Sequence
    from typing import Any

NOT_FOUND, NOT_RUN = 127, 126  # as a shell says it
OWN = "/.dshpc"
OLD, DRIVER, SCRIPT = f"{OWN}/old", f"{OWN}/driver", f"{OWN}/script"
SYSTEM = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp")
FILES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname")
IMAGES_OWN = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "SHELL")
"""Variables that name places in a root filesystem: the image's are right, those of the node's are not."""
# Where the node's own system is mounted; all else that is a mount there is somebody's data
_NODES_OWN = (
    *SYSTEM, "/etc", "/run", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/config", "/var/lib/dshpc",
)  # fmt: skip
_DATA = ("/var/lib/dshpc/home",)
# Where the driver's files are handed over; others are told by the mounts themselves
_DRIVER_PLACES = (
    *(
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/bin",
    ),
    *("/usr/local/nvidia/lib64", "/usr/local/nvidia/bin"),
)
_DRIVER_FILES = ("libcuda.so", "libcudadebugger.so", "libnvcuvid.so", "libnvidia-", "libnvoptix.so")
_DRIVER_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_KEPT_RIGHTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")


class RefusedError(Exception):
    """Why the image was not entered: at which step, the kernel's number, and the place."""

    def __init__(self, step: str, number: int, place: str = "") -> None:
        super().__init__(step, number, place)
        self.step, self.number, self.place = step, number, place


def main(argv: Sequence[str]) -> int:
    """Never returns where the program begins; else the exit code, as a shell has it."""
    if list(argv) == ["--try"]:
        return 0 if refused_here() is None else 1
    environ = dict(os.environ)
    if argv[:1] == ["--environment"]:
        environ, argv = of_file(argv[1]), argv[2:]
    if len(argv) < 2:
        _say("it is called by Slurm and by jobs of dshpc run --image")
        return NOT_RUN
    bundle = argv[0]
    try:
        root, process = described(bundle)
        words = unquoted(argv[1:])
    except (OSError, ValueError) as error:
        _say(f"{bundle} is no OCI bundle: {_text(error)}")
        return NOT_RUN
    folder = os.getcwd()
    script = words[0] if _is_batch_script(words[0]) else None
    try:
        enter(root, environ.get("HOME", ""), script)
    except RefusedError as refused:
        _say(told(refused, root))
        return NOT_RUN
    words[0] = words[0] if script is None else SCRIPT
    lay_over(environ, process, has_driver=os.path.isdir(DRIVER) and bool(os.listdir(DRIVER)))
    for place in (folder, str(process.get("cwd") or "/"), "/"):
        with contextlib.suppress(OSError):
            os.chdir(place)
            break
    return _become(words, environ)


def of_file(path: str) -> dict[str, str]:
    """The variables of a file, each with a NUL behind it (CreateEnvFile=null)."""
    found = (each.partition("=") for each in _read(path).split("\0"))
    return {name: value for name, equals, value in found if name and equals}


def quoted(words: Sequence[str]) -> list[str]:
    """Words as `unquoted` reads them: Slurm 24.11 makes an apostrophe in one the end of a text (%@ of
    oci.conf). Pure."""
    return ["--words", "\0".join(words).encode(errors="surrogateescape").hex()]


def unquoted(words: Sequence[str]) -> list[str]:
    """ValueError for what is not quoted so. Pure."""
    if len(words) == 2 and words[0] == "--words":
        return bytes.fromhex(words[1]).decode(errors="surrogateescape").split("\0")
    return list(words)


def described(bundle: str) -> tuple[str, Mapping[str, Any]]:
    """The root filesystem and `process` of a bundle's config.json; OSError and ValueError."""
    with open(f"{bundle}/config.json", "rb") as file:
        config = foreign.of_file(file)
    if not isinstance(config, dict) or not isinstance(config.get("root"), dict):
        raise ValueError("config.json names no root")
    process = config.get("process")
    path = config["root"].get("path")
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError("config.json names no root.path")
    root = os.path.realpath(os.path.join(bundle, path), strict=True)
    if not os.path.isdir(root) or root == "/":
        raise ValueError(f"{root} is no root filesystem")
    return root, process if isinstance(process, dict) else {}


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
            _put(f"/proc/self/{path}", text)
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
    mounts = _read("/proc/self/mountinfo")
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
        at = _plain((line.split(" ") + [""] * 5)[4])
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
            at = _plain(fields[4])
            if at != "/" and (_below(at, _DATA) or not _below(at, _NODES_OWN)):
                found.add(at)
    tops: list[str] = []
    for at in sorted(found, key=lambda place: (place.count("/"), place)):
        if not _below(at, tops):  # what is mounted below comes along with it
            tops.append(at)
    return tops


def lay_over(
    environ: MutableMapping[str, str], image: Mapping[str, Any], *, has_driver: bool
) -> None:
    """The job's variables with those of the image that the job does not set, and the image's places. Pure."""
    for name in IMAGES_OWN:
        environ.pop(name, None)
    for each in image.get("env") or ():
        name, equals, value = str(each).partition("=")
        if name and equals and "\0" not in value:
            environ.setdefault(name, value)
    environ.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if has_driver:
        for name in ("LD_LIBRARY_PATH", "PATH"):
            environ[name] = ":".join(filter(None, (environ.get(name), DRIVER)))


def told(refused: RefusedError, root: str) -> str:
    """What is said of it in the job's log."""
    why = os.strerror(refused.number)
    if refused.step in ("namespaces", "ids", "mounts"):
        return (
            f"this node lets no job into an image: it refused {refused.step} of the user's own ({why}). "
            "With Docker and Podman it takes the setting containers: dshpc config set containers on, "
            "then configure-environment"
        )
    if refused.number == errno.ELOOP:
        why = "in the image it is a link that leads out of it"
    return f"the image {root} cannot be entered: {refused.place or refused.step}: {why}"


def _become(words: list[str], environ: Mapping[str, str]) -> int:
    """Not by os.execvpe: it imports, and what it would import is out of sight here."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    word = words[0]
    places = (
        [word] if "/" in word else [f"{each or '.'}/{word}" for each in environ["PATH"].split(":")]
    )
    worst: OSError | None = None
    for place in places:
        try:
            os.execve(place, words, environ)
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.exists(place):
                worst = error
        except OSError as error:
            worst = error
    if worst is None:
        _say(f"{word}: there is no such command in the image")
        return NOT_FOUND
    if isinstance(worst, FileNotFoundError):
        _say(
            f"{word} cannot be started: what its first line names, or its loader, is not in the image"
        )
        return NOT_FOUND
    _say(f"{word} cannot be started in the image: {worst.strerror}")
    return NOT_RUN


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


def _is_batch_script(word: str) -> bool:
    """Of `sbatch --container`: slurmd has written it where no image has anything."""
    return word.startswith("/var/") and word.endswith("/slurm_script")


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


def _plain(text: str) -> str:
    r"""A path of mountinfo, in which a blank is "\040"."""
    first, *rest = text.split("\\")
    return first + "".join(
        chr(int(part[:3], 8)) + part[3:] if part[:3].isdigit() else "\\" + part for part in rest
    )


@contextlib.contextmanager
def _step(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename2 or error.filename or ""
        raise RefusedError(name, error.errno or 0, os.fsdecode(place)) from None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _put(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _text(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"dshpc: {text}\n".encode(errors="replace"))
