"""`dshpc-node restore`: a backup from stdin, checked whole, laid beside what is there, and put in its place.

`check` unpacks and compares it with its own list; `accept` has the next start take it; `drop` forgets it. The
start moves what there was into `before-restore`, then what was restored into its place, each step a rename:
one that is killed is gone on with by the next.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

from dshpc_setup import codec
from dshpc_setup.container import backup
from dshpc_setup.container.backup import KEY, MANIFEST, STATE, Manifest
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import cannot_write
from dshpc_setup.machine import Machine
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.terminal.amounts import size
from dshpc_setup.versions import numbers

_BLOCK = 1 << 20
_MOST_MANIFEST = 64 << 20
_MOST_HEAD = (
    1 << 20
)  # of one member, its extended attributes included: tarfile holds them in memory
_MOST_MEMBERS = 4_000_000
_LEFT_BYTES = 64 << 20  # for slurmctld, which goes on writing its state beside it
_LEAST_EACH = 4096  # a file takes a block, and its name a place


def _new(paths: Paths) -> str:
    return f"{paths.state}/restore.new"


def _checked(paths: Paths) -> str:
    return f"{paths.state}/restore.checked"


def _ready(paths: Paths) -> str:
    return f"{paths.state}/restore.ready"


def _moving(paths: Paths) -> str:
    return f"{paths.state}/restore.moving"


def _before(paths: Paths) -> str:
    return f"{paths.state}/before-restore"


def check(machine: Machine, paths: Paths, settings: Settings) -> int:
    """The backup of stdin, unpacked beside what is there; prints what it is. DshpcError where it is none, is
    not whole, or is not for this cluster: then nothing of it stays."""
    drop(paths)
    new = _new(paths)
    try:
        os.mkdir(new, 0o700)
        manifest = _unpack(sys.stdin.buffer, new, _room(paths))
        _fits(manifest, settings, backup.slurm_version(machine))
        os.sync()
        os.rename(new, _checked(paths))
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise cannot_write(new, error) from None
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    print(json.dumps(codec.to_json(_told(manifest), backup.SCHEMA)))
    return 0


def _told(manifest: Manifest) -> Manifest:
    """Without the list, which may be long."""
    from dataclasses import replace

    return replace(manifest, files={})


def accept(paths: Paths) -> int:
    """What was checked is what the next start goes on with."""
    if not os.path.isdir(_checked(paths)):
        raise DshpcError(
            "There is no backup that was checked.", "", ("Restore it: dshpc restore FILE",)
        )
    shutil.rmtree(_before(paths), ignore_errors=True)
    os.rename(_checked(paths), _ready(paths))
    os.sync()
    return 0


def drop(paths: Paths) -> int:
    for folder in (_new(paths), _checked(paths)):
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _room(paths: Paths) -> int:
    """Bytes that the backup may take."""
    found = os.statvfs(paths.state)
    return found.f_bavail * found.f_frsize - _LEFT_BYTES if found.f_blocks else sys.maxsize


class _Measured:
    """What is unpacked, up to `left` bytes: a few packed ones can be any number."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        self._packed, self.left = packed, _MOST_HEAD

    def read(self, size: int) -> bytes:
        block = self._packed.read(size)
        self.left -= len(block)
        if self.left < 0:
            raise _broken("it holds more than it says")
        return block


def _members(stream: IO[bytes], room: int) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Those of a packed archive, to its very end; DshpcError for the first by whose declared size it would
    take more than `room` bytes."""
    taken = count = 0
    with gzip.GzipFile(fileobj=stream) as packed:
        measured = _Measured(packed)
        with tarfile.open(fileobj=cast(IO[bytes], measured), mode="r|") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                count, taken = count + 1, taken + member.size + _LEAST_EACH
                if member.size < 0 or count > _MOST_MEMBERS:
                    raise _broken("it is none that dshpc backup has made")
                if taken > room:
                    raise _too_large(taken, room)
                measured.left = member.size + _MOST_HEAD
                yield archive, member
        while measured.read(_BLOCK):  # tarfile stops before gzip has compared its own sum
            pass


def _unpack(stream: IO[bytes], into: str, room: int) -> Manifest:
    sums: dict[str, str] = {}
    manifest: Manifest | None = None
    try:
        for archive, member in _members(stream, room):
            if manifest is not None:
                raise _broken(f"{member.name} stands behind its end")
            if member.name == MANIFEST:
                manifest = _manifest(archive, member)
                continue
            try:
                _place(archive, member, into, sums)
            except (FileExistsError, NotADirectoryError, OverflowError) as error:
                raise _broken(f"{member.name!r}: {error}") from None
    except EOFError:
        raise _broken("it is cut off: its end is missing") from None
    except (gzip.BadGzipFile, tarfile.ReadError, zlib.error):
        raise _broken("it is damaged, or no archive that dshpc backup has made") from None
    except (tarfile.TarError, ValueError) as error:
        raise _broken(str(error)) from None
    if manifest is None:
        raise _broken("it is cut off: its end is missing")
    if wrong := sorted(
        name
        for name in sums.keys() | manifest.files.keys()
        if sums.get(name) != manifest.files.get(name)
    ):
        raise _broken(f"{wrong[0]} is not as it was written")
    return manifest


def _manifest(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Manifest:
    file = archive.extractfile(member) if member.size <= _MOST_MANIFEST else None
    if file is None:
        raise _broken("its end is none")
    return codec.from_json(Manifest, foreign.value(file.read()), backup.SCHEMA)


def _place(
    archive: tarfile.TarFile, member: tarfile.TarInfo, into: str, sums: dict[str, str]
) -> None:
    """One file or folder below `state` or `key`, and nowhere else."""
    parts = member.name.split("/")
    if (
        parts[0] not in (STATE, KEY)
        or not all(parts)
        or {".", ".."} & set(parts)
        or len(parts) > backup.DEEPEST + 1
    ):
        raise _broken(f"{member.name!r} lies nowhere in a cluster's state")
    is_top, is_key = len(parts) == 1, parts[0] == KEY
    if (is_top or (is_key and len(parts) == 2)) and member.isdir() != is_top:
        raise _broken(f"{member.name!r} is not of the kind that it has in a backup")
    # A start could not move these: it would find its own folders in the way, each time
    if (is_key and len(parts) > 2) or (not is_key and backup.is_not_kept(parts[1:2])):
        raise _broken(f"{member.name!r} is nothing that a backup holds")
    path = f"{into}/{member.name}"
    if member.isdir():
        os.makedirs(path, exist_ok=True)
    elif member.isreg() and (file := archive.extractfile(member)) is not None:
        summed = hashlib.sha256()
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to:
            while block := file.read(_BLOCK):
                summed.update(block)
                to.write(block)
        sums[member.name] = summed.hexdigest()
    else:
        raise _broken(f"{member.name} is neither a file nor a folder")
    os.chown(path, member.uid, member.gid)
    os.chmod(path, member.mode & 0o777)
    os.utime(path, (member.mtime, member.mtime))


def _fits(manifest: Manifest, settings: Settings, here: str) -> None:
    if manifest.prefix != settings.prefix:
        raise DshpcError(
            f"This backup is of the cluster {manifest.prefix}, and this one is called {settings.prefix}.",
            "slurmctld takes over no queue of another cluster.",
            (
                Fix(
                    "Set up one of that name, in an empty folder",
                    f"configure-environment --prefix {manifest.prefix}",
                ),
            ),
        )
    if (numbers(manifest.slurm) or ())[:2] > (numbers(here) or ())[:2]:
        raise DshpcError(
            f"This backup is of Slurm {manifest.slurm}, and here is {here}.",
            "Slurm reads what an older release has written, and nothing of a newer one.",
            (
                Fix(
                    "Build the image with the packages of today first",
                    "configure-environment --renew",
                ),
            ),
        )


def _too_large(taken: int, room: int) -> DshpcError:
    return DshpcError(
        "The backup needs more room than the state volume has.",
        f"It holds more than {size(taken - 1)}, and {size(max(0, room))} are free for it; "
        f"{size(_LEFT_BYTES)} more stay free for Slurm.",
        (
            Fix("See what is full", "docker system df; df -h", step="look"),
            "Make room on the disk that the engine keeps its volumes on.",
            Fix("Then", "dshpc restore FILE", step="after"),
        ),
    )


def _broken(why: str) -> DshpcError:
    """`why` without its capital letter and its full stop: "it is cut off"."""
    return DshpcError(
        "The file is no whole backup of a cluster.",
        f"{why[:1].upper()}{why[1:]}.",
        ("Use another backup: dshpc backup makes them.",),
    )


def take(paths: Paths) -> str | None:
    """At a start, before anything is read: a restored state in its place, where one was accepted."""
    moving, before = _moving(paths), _before(paths)
    if os.path.isdir(_ready(paths)):
        os.makedirs(before, 0o700, exist_ok=True)
        for name in sorted(os.listdir(paths.state)):
            if not re.fullmatch(r"restore\..*|before-restore", name):
                os.rename(f"{paths.state}/{name}", f"{before}/{name}")
        os.rename(_ready(paths), moving)
    if not os.path.isdir(moving):
        return None
    state = f"{moving}/{STATE}"
    for name in sorted(os.listdir(state) if os.path.isdir(state) else ()):
        os.rename(f"{state}/{name}", f"{paths.state}/{name}")
    _take_keys(paths, f"{moving}/{KEY}", f"{before}/.{KEY}")
    os.sync()
    shutil.rmtree(moving)
    return f"A backup was restored. What there was before lies in {before}."


def _take_keys(paths: Paths, restored: str, before: str) -> None:
    """They lie in another volume: each is written beside the former one, and replaces it."""
    folder = os.path.dirname(paths.key)
    os.makedirs(before, 0o700, exist_ok=True)
    for name in sorted(os.listdir(restored) if os.path.isdir(restored) else ()):
        live, kept = f"{folder}/{name}", f"{before}/{name}"
        if os.path.exists(live) and not os.path.exists(kept):
            shutil.copy2(live, kept)
        shutil.copy2(f"{restored}/{name}", f"{live}.new")
        found = os.stat(f"{restored}/{name}")
        os.chown(f"{live}.new", found.st_uid, found.st_gid)
        os.rename(f"{live}.new", live)
