"""Root filesystems in the user's cache: unpacked once, by the digest of their archive."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from dshpc_setup import codec
from dshpc_setup.builtin import cache, trees
from dshpc_setup.builtin.archive import ArchiveError, Fault, Unpacked, most_bytes, plain, unpack
from dshpc_setup.builtin.ids import Ids, Way, become_root
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.files import atomic, locks
from dshpc_setup.machine import Machine, Say

SCHEMA = "dshpc.rootfs/1"
_BLOCK = 1 << 20
_KEPT_S = 7 * 24 * 3600.0
_ZSTD = b"\x28\xb5\x2f\xfd"  # RFC 8878, 3.1.1


@dataclass(frozen=True)
class Rootfs:
    """One that lies unpacked at `folder`; `ids` are those that its files have."""

    digest: str
    ids: Ids
    folder: str
    unpacked: Unpacked


def cache_folder(env: Mapping[str, str]) -> Path:
    """`dshpc/images` in XDG_CACHE_HOME where that is a whole path, or else in ~/.cache."""
    return cache.folder(env) / "images"


def layers_folder(env: Mapping[str, str]) -> Path:
    """Beside it: what images are made on, and no container runs."""
    return cache.folder(env) / "layers"


def digest_of(archive: Path) -> str:
    """SHA-256 of the file in hexadecimal; DshpcError where it cannot be read."""
    found = hashlib.sha256()
    try:
        with open(archive, "rb") as file:
            while block := file.read(_BLOCK):
                found.update(block)
    except OSError as error:
        raise atomic.read_error(error, archive) from None
    return found.hexdigest()


def ensure(
    machine: Machine,
    archive: Path,
    ids: Ids,
    *,
    expected: str | None = None,
    deadline_s: float = 300.0,
) -> Rootfs:
    """The archive's root filesystem, unpacked if it is not there yet, for containers with these ids.

    The archive is a tar, a tar.gz, a tar.xz or, where there is the program zstd, a tar.zst.
    `expected`: the digest that it must have. Raises DshpcError, and leaves nothing half done: what a
    killed run has left is removed by the next one. Two at a time unpack it once. Waits no longer than
    `deadline_s`.
    """
    digest = digest_of(archive)
    if expected is not None and digest != expected:
        raise DshpcError(
            f"{archive} is not the archive that is expected.",
            f"Its digest is {digest} instead of {expected}.",
            ("Fetch it again.",),
        )
    top = cache_folder(machine.env)
    place = top / digest
    cache.make_folder(place)
    _refuse_noexec(place)
    with _locked(place / "lock", deadline_s):
        found = _known(place, digest, ids)
        if found is not None:
            return found
        for left in place.iterdir():
            if left.name == f".{ids.way}.tar":
                left.unlink()
            elif left.name == ids.way or left.name.startswith(f".{ids.way}."):
                trees.remove(machine, ids, left)
        try:
            trees.need_owners(machine, ids, place)
            most = most_bytes(archive.stat().st_size)
            with _as_tar(machine, archive, place / f".{ids.way}.tar", most, deadline_s) as tar:
                wanted = Rootfs(digest, ids, "", Unpacked(0, 0, 0, None))
                return _unpacked(machine, (tar, most), place, wanted, deadline_s)
        finally:
            _remove_empty(place)


def make(
    machine: Machine,
    digest: str,
    ids: Ids,
    fill: Callable[[Path], None],
    deadline_s: float = 2400.0,
) -> Rootfs:
    """The root filesystem that is called by that digest, made by `fill` where it is not there yet.

    `fill` is given a folder that it is to make. Two at a time make it once; what a killed run has left is
    removed by the next one.
    """
    with _made(machine, cache_folder(machine.env) / digest, ids, fill, deadline_s) as made:
        return made


@contextlib.contextmanager
def layer(
    machine: Machine,
    digest: str,
    ids: Ids,
    fill: Callable[[Path], None],
    deadline_s: float = 2400.0,
) -> Iterator[Rootfs]:
    """The same of what other root filesystems are made on; nobody removes it within the block."""
    with _made(machine, layers_folder(machine.env) / digest, ids, fill, deadline_s) as made:
        os.utime(
            Path(made.folder).with_suffix(".json")
        )  # when it was used last: see `prune_layers`
        yield made


def prune_layers(machine: Machine, ids: Ids, unused_s: float = _KEPT_S) -> None:
    """Layers go that nothing was made on for so long, and what killed runs have left of some. DshpcError."""
    top = layers_folder(machine.env)
    oldest = time.time() - unused_s
    for place in sorted(top.iterdir()) if top.is_dir() else ():
        record = place / f"{ids.way}.json"
        try:
            if (record if record.exists() else place).stat().st_mtime > oldest:
                continue
            with locks.held(place / "lock") as ours:
                if ours:
                    _removed(machine, place, ids)
        except OSError:  # another run has removed it
            continue
    with contextlib.suppress(OSError):
        top.rmdir()  # where it is empty


@contextlib.contextmanager
def _made(
    machine: Machine, place: Path, ids: Ids, fill: Callable[[Path], None], deadline_s: float
) -> Iterator[Rootfs]:
    cache.make_folder(place)
    _refuse_noexec(place)
    with _locked(place / "lock", deadline_s):
        yield _known(place, place.name, ids) or _filled(machine, place, ids, fill)


def _filled(machine: Machine, place: Path, ids: Ids, fill: Callable[[Path], None]) -> Rootfs:
    new, final = place / f".{ids.way}.new", place / ids.way
    try:
        for left in (new, final):
            trees.remove(machine, ids, left)
        trees.need_owners(machine, ids, place)
        fill(new)
        files, size = trees.counted(machine, ids, new)
        made = Rootfs(place.name, ids, str(final), Unpacked(files, size, 0, machine.system[2]))
        _record(place, made)
        os.rename(new, final)
        atomic.sync_folder(place)
        return made
    finally:
        trees.remove(machine, ids, new)
        _remove_empty(place)


def known(machine: Machine, digest: str, ids: Ids) -> Rootfs | None:
    """What is unpacked of that digest for containers with these ids; None where it is not there."""
    return _known(cache_folder(machine.env) / digest, digest, ids)


def remove_all(machine: Machine, digest: str) -> None:
    """What is unpacked of that digest, for whichever ids this user had; DshpcError."""
    place = cache_folder(machine.env) / digest
    for way in get_args(Way):
        if (found := _read(place, way)) is not None:
            remove(machine, digest, found.ids)


def remove(machine: Machine, digest: str, ids: Ids, deadline_s: float = 120.0) -> None:
    """What is unpacked of that digest for these ids; nothing where there is nothing. DshpcError."""
    if not digest or not set(digest) <= set("0123456789abcdef"):
        raise usage_error(f"{digest!r} is not a digest.", "", "Give its 64 hexadecimal digits.")
    place = cache_folder(machine.env) / digest
    if not place.is_dir():
        return
    with _locked(place / "lock", deadline_s):
        _removed(machine, place, ids, deadline_s)


def _removed(machine: Machine, place: Path, ids: Ids, deadline_s: float = 120.0) -> None:
    """What is there for these ids, under its lock. Its record goes first: no half is taken for whole."""
    (place / f"{ids.way}.json").unlink(missing_ok=True)
    for left in list(place.iterdir()):
        # ".root.new", and what is being made to become that: "..root.new.new"
        whose = left.name.lstrip(".").partition(".")[0]
        if whose == ids.way and not left.name.endswith("lock"):
            trees.remove(machine, ids, left, deadline_s)
    _remove_empty(place)


def _remove_empty(place: Path) -> None:
    """Under its lock, where locks are all that is left in it."""
    if all(left.name.endswith("lock") for left in place.iterdir()):
        try:
            shutil.rmtree(place)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            # NFS keeps a file that is open, as the lock is, by another name until it is closed


def _known(place: Path, digest: str, ids: Ids) -> Rootfs | None:
    """The one that is there, where its files have these ids."""
    found, folder = _read(place, ids.way), place / ids.way
    if found is None:
        return None
    there = found.ids == ids and found.digest == digest and folder.is_dir()
    return found if there and found.folder == str(folder) else None


def _read(place: Path, way: Way) -> Rootfs | None:
    """What is written down of it."""
    try:
        told = foreign.value((place / f"{way}.json").read_text())
        return codec.from_json(Rootfs, told, SCHEMA)
    except (OSError, ValueError):
        return None


def _unpacked(
    machine: Machine, told: tuple[Path, int], place: Path, wanted: Rootfs, deadline_s: float
) -> Rootfs:
    """`told`: the archive, and how many bytes may come of it."""
    (tar, most), ids = told, wanted.ids
    new, final = place / f".{ids.way}.new", place / ids.way
    os.mkdir(new, 0o755)
    arch = machine.system[2]

    def question(say: Say) -> None:
        source = os.open(tar, os.O_RDONLY)  # before we are another user
        become_root(machine, ids)
        try:
            here = Path(f"/proc/self/fd/{source}")
            say(unpack(here, new, owners=ids.way != "single", machine=arch, most=most))
        except ArchiveError as error:
            say((error.fault, error.what))

    try:
        ended = machine.apart({"unpack": question}, deadline_s=deadline_s)["unpack"]
        for item in ended.items:
            if isinstance(item, Unpacked):
                _record(place, Rootfs(wanted.digest, ids, str(final), item))
                os.rename(new, final)
                atomic.sync_folder(place)
                return Rootfs(wanted.digest, ids, str(final), item)
            raise _error(place, item, arch)
        raise DshpcError(
            "The root filesystem could not be unpacked.",
            ended.detail or "",
            ("Run this again.",),
        )
    finally:
        trees.remove(machine, ids, new)


def _record(place: Path, found: Rootfs) -> None:
    text = json.dumps(codec.to_json(found, SCHEMA), indent=1) + "\n"
    atomic.write_atomic(place / f"{found.ids.way}.json", text)


def _error(place: Path, told: tuple[str, str], arch: str) -> DshpcError:
    fault: Fault = next(each for each in get_args(Fault) if each == told[0])
    what = told[1]
    again = ("Fetch or build the archive again.",)
    room = Fix("See what is full", f"df -h {shlex.quote(str(place.parent))}", step="look")
    match fault:
        case "truncated":
            return DshpcError(
                "The archive of the root filesystem is damaged: it ends early.", what, again
            )
        case "no-archive":
            return DshpcError("This is not an archive of a root filesystem.", what, again)
        case "unsafe":
            brief = "The archive of the root filesystem is not safe to unpack."
            return DshpcError(
                brief, f"This leads out of its folder: {what}", ("Use another archive.",)
            )
        case "too-large":
            brief = "The archive of the root filesystem becomes far too large."
            said = f"Packed as small as it is, it is no root filesystem. It was left at {what}."
            return DshpcError(brief, said, ("Use another archive, of dshpc image save.",))
        case "architecture":
            brief = f"The root filesystem is for another processor: {what}."
            return DshpcError(brief, f"This machine is {arch}.", (f"Use an archive for {arch}.",))
        case "no-room":
            return DshpcError("There is no room for the root filesystem.", what, (room,))
        case "write":
            return DshpcError("The root filesystem could not be written.", what, (room,))


@contextlib.contextmanager
def _locked(path: Path, deadline_s: float) -> Iterator[None]:
    try:
        with locks.held(path, deadline_s) as ours:
            if not ours:
                raise DshpcError(
                    "Another run is unpacking the same root filesystem.",
                    f"{path} was locked for {deadline_s:g} s.",
                    ("Wait for it, then run this again.",),
                )
            yield
    finally:
        with contextlib.suppress(OSError):  # what `_remove_empty` has left on NFS
            path.parent.rmdir()


def _refuse_noexec(place: Path) -> None:
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise DshpcError(
            f"No program can be started from {place}.",
            "Its file system is mounted with the option noexec.",
            ("Choose a folder on another file system: XDG_CACHE_HOME=DIR.",),
        )


def write_tar(machine: Machine, archive: Path, to: Path, deadline_s: float = 300.0) -> None:
    """The archive as a plain tar, of which as much may come as of one that is unpacked; DshpcError."""
    most = most_bytes(archive.stat().st_size)
    with _as_tar(machine, archive, to.with_name(f"{to.name}.zst"), most, deadline_s) as tar:
        try:
            plain(tar, to, most)
        except ArchiveError as error:
            raise _error(to.parent, (error.fault, error.what), machine.system[2]) from None


@contextlib.contextmanager
def _as_tar(
    machine: Machine, archive: Path, plain: Path, most: int, deadline_s: float
) -> Iterator[Path]:
    """The archive, or what zstd makes of it beside the root filesystem, for as long; `most`: its bytes."""
    with open(archive, "rb") as file:
        if file.read(4) != _ZSTD:
            yield archive
            return
    if machine.which("zstd") is None:
        raise DshpcError(
            f"{archive} is packed with zstd, and there is no program to unpack it.",
            "",
            (Fix("Install zstd", "sudo apt-get install zstd"),),
        )
    try:
        disk = os.statvfs(plain.parent)
        room = disk.f_bavail * disk.f_frsize * 9 // 10
        unzip = ("zstd", "-q", "-d", "-f", "-o", str(plain), "--", str(archive))
        # In blocks of 512 bytes (POSIX's ulimit): what would fill the disk is stopped before
        limited = f"ulimit -f {min(most, room) // 512} && exec {shlex.join(unzip)}"
        done = machine.run(["sh", "-c", limited], deadline_s=deadline_s)
        if done.code == -signal.SIGXFSZ:
            what = f"{archive.name}: more than {min(most, room)} bytes"
            raise _error(plain.parent, ("too-large" if most < room else "no-room", what), "")
        if not done.ok:
            raise _error(plain.parent, ("truncated", done.text), "")
        yield plain
    finally:
        plain.unlink(missing_ok=True)
