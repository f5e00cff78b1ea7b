"""An OCI bundle out of an image's file: `rootfs` and a config.json that says how its programs begin."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.builtin import trees
from dshpc_setup.builtin.archive import most_bytes
from dshpc_setup.files import tree
from dshpc_setup.machine import Machine
from dshpc_setup.oci import reading, sif, sources, unpacking
from dshpc_setup.oci.model import Fault, Image, ImageError, Start
from dshpc_setup.oci.sif import Partition
from dshpc_setup.oci.sources import Source

ROOT, CONFIG = "rootfs", "config.json"
_HEAD = 64
_BLOCK = 1 << 20
_UNPACK_S = 1800.0
_MOST_SCRIPT = 1 << 20
_LEAST_BYTES = 4096
_LISTED = re.compile(r"(\d{1,40}) \d{4}-\d\d-\d\d \d\d:\d\d ")
_OWN = ".dshpc"
_PLACES = ("dev", "proc", "sys", "tmp", "var/tmp", "etc", f"{_OWN}/old", f"{_OWN}/driver")


@dataclass(frozen=True)
class Found:
    """An image in a file: of layers, or a SIF's squashfs."""

    digest: str
    path: Path
    layers: tuple[Image, Source] | None = None
    squashfs: Partition | None = None


@contextlib.contextmanager
def found(path: Path, scratch: Path, machine: str) -> Iterator[Found]:
    """The image in that file or folder, for a processor as `uname -m` names it; raises ImageError.

    `scratch`: a folder for what has to be unpacked to be looked at.
    """
    try:
        seen = path.stat()
        if stat.S_ISREG(seen.st_mode):
            with open(path, "rb") as file:
                if sif.is_sif(file.read(_HEAD)):
                    yield _of_sif(path, machine)
                    return
        elif not stat.S_ISDIR(seen.st_mode):
            raise ImageError("no-image", "it is neither a file nor a folder")
        with sources.of_file(path, scratch) as source:
            image = reading.image(source, machine)
            yield Found(image.digest, path, layers=(image, source))
    except FileNotFoundError:
        raise ImageError("absent") from None


def _of_sif(path: Path, machine: str) -> Found:
    with open(path, "rb") as file:
        place = sif.partition(file, os.fstat(file.fileno()).st_size, machine)
        digest = hashlib.sha256()
        file.seek(place.offset)
        left = place.size
        while left and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            left -= len(block)
    return Found(digest.hexdigest(), path, squashfs=place)


def make(machine: Machine, image: Found, into: Path) -> None:
    """The bundle, in the empty folder `into`, as the caller's own; raises ImageError, OSError and
    DshpcError."""
    root, removed = into / ROOT, into / "removed"
    if image.layers is not None:
        root.mkdir(0o755)
        removed.mkdir(0o700)
        described, source = image.layers
        unpacking.unpack(described, source, root, removed, machine.system[2])
        trees.remove_here(removed)
        start = described.start
    else:
        start = _unsquashed(machine, image, root)
    os.chmod(root, 0o755)
    trees.remove_here(
        root / _OWN
    )  # what an image has there would be taken for what the way in has laid down
    for place in _PLACES:
        with contextlib.suppress(FileExistsError):  # a link, say
            os.makedirs(_inside(root, place), 0o755, exist_ok=True)
    text = json.dumps(config(start, os.getuid(), os.getgid()), indent=1)
    (into / CONFIG).write_text(f"{text}\n", encoding="utf-8")


def _inside(root: Path, place: str) -> Path:
    """Where to make a folder; a part that is a link is left to whoever made the image."""
    at = root
    for part in place.split("/"):
        at = at / part
        if at.is_symlink():
            raise FileExistsError
    return at


def config(start: Start, uid: int, gid: int) -> dict[str, object]:
    """As the OCI runtime specification has it. Pure."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": uid, "gid": gid},
            "args": [*start.entrypoint, *start.command] or ["/bin/sh"],
            "env": list(start.environment),
            "cwd": start.folder,
            "noNewPrivileges": True,
        },
        "root": {"path": ROOT, "readonly": True},
        "linux": {"namespaces": [{"type": "user"}, {"type": "mount"}]},
    }


def _unsquashed(machine: Machine, image: Found, root: Path) -> Start:
    place = image.squashfs
    if place is None or machine.which("unsquashfs") is None:
        raise ImageError("no-program", "unsquashfs")
    packed = root.parent / "squashfs"
    try:
        _take(image, place, packed)
        _need_fit(machine, packed, most_bytes(place.size))
        words = [
            *("unsquashfs", "-no-progress", "-no-xattrs", "-quiet", "-processors", "2"),
            *("-d", str(root), str(packed)),
        ]
        # In blocks of 512 bytes (POSIX's ulimit): a file that would fill the disk is stopped before
        limited = f"ulimit -f {most_bytes(place.size) // 512} && exec {shlex.join(words)}"
        done = machine.run(["sh", "-c", limited], deadline_s=_UNPACK_S)
    finally:
        packed.unlink(missing_ok=True)
    # 2: what only root may make (device nodes) is left out
    if done.code not in (0, 2) or not root.is_dir():
        raise ImageError(_fault_of(root.parent), done.text.strip()[-400:] or done.state)
    _harmless(root)
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return Start(sif.environment(_script(root)))
    return Start()


def _take(image: Found, place: Partition, into: Path) -> None:
    """A copy that nobody else writes, compared with the digest that it is kept by: who may write the file
    would have something else kept in the place of a right image."""
    digest, left = hashlib.sha256(), place.size
    with open(image.path, "rb") as file, open(into, "xb") as copy:
        file.seek(place.offset)
        while left and (block := file.read(min(_BLOCK, left))):
            digest.update(block)
            copy.write(block)
            left -= len(block)
    if digest.hexdigest() != image.digest:
        raise ImageError("damaged", "it was changed as it was read")


def _need_fit(machine: Machine, packed: Path, most: int) -> None:
    """Before a byte is written: unsquashfs has no limit for all files together."""
    left = most

    def on_line(line: str) -> None:
        nonlocal left
        left -= taken(line)
        if left < 0:
            raise ImageError("too-large", line[-_HEAD:])

    # For the C locale's dates
    words = ["env", "LC_ALL=C", "unsquashfs", "-lls", str(packed)]
    done = machine.run(words, deadline_s=_UNPACK_S, on_line=on_line)
    if not done.ok:
        raise ImageError("refused", done.text.strip()[-400:] or done.state)


def taken(line: str) -> int:
    """Bytes of a file that `unsquashfs -lls` lists, at least what any takes. The first date of a line stands
    behind its size, and ids that leave no blank between make that larger. Pure."""
    found = _LISTED.search(line) if line.startswith("-") else None
    return max(_LEAST_BYTES, int(found[1]) if found is not None else 0)


def _script(root: Path) -> str:
    """The image's own, by no link: one would be followed on this machine."""
    *folders, name = sif.ENVIRONMENT.split("/")
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for each in folders:
            above, at = at, tree.open_folder(each, at)
            os.close(above)
        with open(tree.open_file(name, at), "rb") as file:
            text = file.read(_MOST_SCRIPT + 1)
    finally:
        os.close(at)
    return text.decode() if len(text) <= _MOST_SCRIPT else ""


def _fault_of(folder: Path) -> Fault:
    disk = os.statvfs(folder)
    return "no-room" if disk.f_bavail * disk.f_frsize < 16 << 20 else "refused"


def _harmless(root: Path) -> None:
    """No device nodes, no other's rights, and no folder that its owner cannot enter."""
    for above, folders, files in os.walk(root):
        for name in folders:
            path = os.path.join(above, name)
            if not os.path.islink(path):
                os.chmod(path, (os.lstat(path).st_mode & 0o1777) | 0o700)
        for name in files:
            path = os.path.join(above, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISREG(mode):
                os.chmod(path, (mode & 0o1777) | 0o600)
            elif not stat.S_ISLNK(mode):
                os.unlink(path)
