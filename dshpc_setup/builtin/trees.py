"""Folders of a container: removed and copied by root of its namespace, whoever owns what is in them."""

from __future__ import annotations

import errno
import itertools
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from dshpc_setup.builtin.ids import LEAST_IDS, Ids, become_root
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import Machine, Say

# EACCES: a server that takes root for nobody does not let it write in its user's folder, either
_NO_OWNERS = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOTSUP)


def remove(machine: Machine, ids: Ids, folder: Path, deadline_s: float = 120.0) -> None:
    """The folder with all that is in it; nothing where there is none. DshpcError where some of it stays."""
    if not os.path.lexists(folder):
        return

    def question(_: Say) -> None:
        become_root(machine, ids)
        remove_here(folder)

    ended = machine.apart({"remove": question}, deadline_s=deadline_s)["remove"]
    if ended.state != "present" or os.path.lexists(folder):
        raise DshpcError(
            f"Not everything in {folder} could be removed.",
            _range_lost(machine, ids) or ended.detail or "",
            (Fix("Remove it as root", f"sudo rm -r {shlex.quote(str(folder))}"),),
        )


def _range_lost(machine: Machine, ids: Ids) -> str | None:
    """That the files have ids of a range which this user has no more, and how he gets it back."""
    from dshpc_setup.builtin import rights

    if (
        ids.way != "mapped"
        or ids.uids is None
        or ids.gids is None
        or rights.ranges(machine)[0] == ids
    ):
        return None
    uids, gids = (f"{first}-{first + LEAST_IDS - 1}" for first in (ids.uids, ids.gids))
    return (
        f"Its files have the ids {uids}, which /etc/subuid and /etc/subgid do not give you any more.\n"
        f"Have them given back: sudo usermod --add-subuids {uids} --add-subgids {gids} "
        f"{rights.current_user()}"
    )


def need_owners(machine: Machine, ids: Ids, folder: Path, deadline_s: float = 20.0) -> None:
    """Raises DshpcError where the file system of that folder gives files no owners of the container's.

    A server of NFS does not: it makes root nobody (root_squash), and knows nothing of ids that are root's
    in a namespace alone.
    """
    if ids.way == "single":
        return

    def question(say: Say) -> None:
        become_root(machine, ids)
        tried = folder / f".{os.getpid()}.owner"
        try:
            os.close(os.open(tried, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
            os.chown(tried, 1, 1)
            say("")
        except OSError as error:
            say(os.strerror(error.errno or 0) if error.errno in _NO_OWNERS else "")
        finally:
            tried.unlink(missing_ok=True)

    told = machine.apart({"owners": question}, deadline_s=deadline_s)["owners"].items
    if any(told):
        raise DshpcError(
            f"The file system of {folder} does not let files belong to the users of a container.",
            f"It said: {told[0]}. NFS does so, and others that keep no owners.",
            (
                "Choose a folder on a disk of this machine: export XDG_CACHE_HOME=DIR",
                "For the project: configure-environment --dir DIR",
            ),
        )


def counted(machine: Machine, ids: Ids, folder: Path, deadline_s: float = 120.0) -> tuple[int, int]:
    """How many files there are in it, and their bytes; DshpcError."""

    def question(say: Say) -> None:
        become_root(machine, ids)
        found = [
            os.lstat(os.path.join(above, name))
            for above, _, names in os.walk(folder)
            for name in names
        ]
        say((len(found), sum(each.st_size for each in found)))

    ended = machine.apart({"count": question}, deadline_s=deadline_s)["count"]
    if not ended.items:
        raise DshpcError(f"{folder} could not be read.", ended.detail or "", ("Run this again.",))
    files, size = ended.items[0]
    return int(files), int(size)


def remove_here(folder: Path) -> None:
    """The same in this process; raises OSError.

    Each folder below is moved up into this one and emptied there: a tree may be deeper than a path may be
    long, or a stack high, and whoever made it meant it so.
    """
    try:
        seen = os.lstat(folder)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(seen.st_mode):
        os.unlink(folder)
        return
    os.chmod(folder, 0o700)
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        moved = itertools.count()
        waiting = _emptied(top, top, moved)
        while waiting:
            name = waiting.pop()
            handle = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top
            )
            try:
                waiting += _emptied(handle, top, moved)
            finally:
                os.close(handle)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)


def _emptied(handle: int, top: int, moved: Iterator[int]) -> list[str]:
    """The names in `top` of the folders that were in this one, in which nothing is then."""
    found = []
    for name in os.listdir(handle):
        seen = os.stat(name, dir_fd=handle, follow_symlinks=False)
        if not stat.S_ISDIR(seen.st_mode):
            os.unlink(name, dir_fd=handle)
            continue
        if seen.st_mode & 0o700 != 0o700:  # without rights of its own, as overlayfs leaves one
            os.chmod(name, 0o700, dir_fd=handle)
        new = name
        while handle != top:
            new = f".dshpc-{next(moved)}"
            try:
                os.stat(new, dir_fd=top, follow_symlinks=False)
            except FileNotFoundError:
                os.rename(name, new, src_dir_fd=handle, dst_dir_fd=top)
                break
        found.append(new)
    return found


def copy_here(source: Path, target: Path, shared: str = "") -> None:
    """A copy with owners, modes, links and hard links, in this process; raises OSError.

    File systems that share blocks (Btrfs, XFS) copy none. Files below the folder `shared` of the source get
    a second name and are not copied: who changes the copy may replace and remove them, and not write to them.
    """
    known: dict[tuple[int, int], Path] = {}
    os.mkdir(target, 0o700)
    folders = [(source, target)]
    for above, names, files in os.walk(source):
        below = os.path.relpath(above, source)
        here, linked = target / below, bool(shared) and below.split("/")[0] == shared
        for name in (*names, *files):
            old, new = Path(above, name), here / name
            seen = os.lstat(old)
            if linked and stat.S_ISREG(seen.st_mode) and _linked(old, new):
                continue
            if stat.S_ISDIR(seen.st_mode):
                os.mkdir(new, 0o700)
                folders.append((old, new))
            elif stat.S_ISLNK(seen.st_mode):
                os.symlink(os.readlink(old), new)
                os.chown(new, seen.st_uid, seen.st_gid, follow_symlinks=False)
            elif stat.S_ISREG(seen.st_mode):
                first = known.setdefault((seen.st_dev, seen.st_ino), new)
                if first is new:
                    _copy_file(old, new)
                    _alike(new, seen)
                else:
                    os.link(first, new)
    for old, new in reversed(folders):
        _alike(new, os.lstat(old))


def _linked(old: Path, new: Path) -> bool:
    """Whether the file has a second name now: it may have too many already, or its file system none."""
    try:
        os.link(old, new)
    except OSError:
        return False
    return True


def _copy_file(old: Path, new: Path) -> None:
    import fcntl

    clone = 0x40049409  # FICLONE of linux/fs.h
    with open(old, "rb") as source, open(new, "xb") as target:
        try:
            fcntl.ioctl(target.fileno(), clone, source.fileno())
        except OSError:
            shutil.copyfileobj(source, target, 1 << 20)


def _alike(new: Path, seen: os.stat_result) -> None:
    os.chown(new, seen.st_uid, seen.st_gid)
    os.chmod(new, stat.S_IMODE(seen.st_mode))
    os.utime(new, ns=(seen.st_atime_ns, seen.st_mtime_ns))
