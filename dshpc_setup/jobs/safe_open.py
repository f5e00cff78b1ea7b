"""Files in folders that users write in: opened part by part, by no link, and judged once they are open.

A path that was looked at may name something else when it is opened, so nothing is checked by its path:
each part is opened in the folder before it, and its owner is that of what is open. Each job's start
imports this, so imports are counted.
"""

from __future__ import annotations

import contextlib
import os
import stat

TYPE_CHECKING = False  # importing typing costs a job's start
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Of a folder on the way, which need not be ours to list: other people's homes are not
_WAY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe must not hold us up
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
OTHERS_WRITE = 0o022


class NotTheirsError(PermissionError):
    """Something stands there that is not that user's."""


def folder(name: str, at: int | None = None) -> int:
    """A folder, open; OSError for a link and for what is none."""
    return os.open(name, _FOLDER, dir_fd=at)


@contextlib.contextmanager
def opened(name: str, at: int | None = None) -> Iterator[int]:
    handle = folder(name, at)
    try:
        yield handle
    finally:
        os.close(handle)


def walked(top: str, parts: Sequence[str]) -> int:
    """The folder that lies at `parts` below `top`, open; `top` itself is taken as it is said."""
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        before = at
        try:
            at = folder(part, before)
        finally:
            os.close(before)
    return at


def file(name: str, at: int, uid: int | None) -> int:
    """A user's file, open for reading; OSError for a link and for another's, IsADirectoryError for
    what is no file. `uid` None: whoever's."""
    handle = os.open(name, _FILE, dir_fd=at)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise IsADirectoryError(0, "it is not a file", name)
        if uid is not None:
            check_owner(found, uid, at, name)
    except BaseException:
        os.close(handle)
        raise
    return handle


def file_at(path: str, work: str, uid: int | None) -> int:
    """As `file`, of a whole path: no part of it is a link, but for the work folder's own."""
    top = work if work and path.startswith(f"{work.rstrip('/')}/") else "/"
    parts = [part for part in path[len(top) :].split("/") if part not in ("", ".")]
    if not path.startswith("/") or not parts or ".." in parts:
        raise FileNotFoundError(2, os.strerror(2), path)
    at = walked(top, parts[:-1])
    try:
        return file(parts[-1], at, uid)
    finally:
        os.close(at)


@contextlib.contextmanager
def above(real: str) -> Iterator[tuple[int, str]]:
    """Of a path that was resolved: the folder that it lies in, open to open what is in it, and its name
    there. No part of it may be a link by now."""
    parts = [part for part in real.split("/") if part not in ("", ".")]
    if not real.startswith("/") or not parts or ".." in parts:
        raise FileNotFoundError(2, os.strerror(2), real)
    at = os.open("/", _WAY)
    try:
        for part in parts[:-1]:
            before = at
            at = os.open(part, _WAY, dir_fd=before)
            os.close(before)
        yield at, parts[-1]
    finally:
        os.close(at)


def real_file(real: str) -> int:
    """Whoever's file, open for reading, by a path that was resolved; as `file`."""
    with above(real) as (at, name):
        return file(name, at, None)


def check_owner(found: os.stat_result, uid: int, at: int, name: str) -> None:
    """Raises NotTheirsError unless it is that user's; `at` is a folder of the same file system."""
    if not is_of(found, uid, at):
        raise NotTheirsError(1, f"it belongs to user {found.st_uid}, not to user {uid}", name)


def is_of(found: os.stat_result, uid: int, at: int) -> bool:
    """Whether that is the user's.

    There are file systems that give all files to one user, or root's to nobody: NFS with root_squash
    or all_squash, WSL's /mnt/c, what Docker Desktop shares. What we make there is that one's, too. And where
    all users are one id, all files are that one's.
    """
    if found.st_uid == uid or found.st_uid == others_given(at):
        return True
    if found.st_uid != os.getuid():
        return False
    from dshpc_setup.jobs import rights  # seldom needed

    return rights.is_one_id()


def others_given(at: int) -> int | None:
    """Whom the file system gives what we make in that folder, where that is not us; else None."""
    given = given_owner(at)
    return None if given == os.getuid() else given


def given_owner(at: int) -> int | None:
    """The owner of a file that we make in that folder; None where we cannot."""
    name = f".dshpc-{os.urandom(6).hex()}"
    try:
        handle = os.open(name, _NEW, 0o600, dir_fd=at)
    except OSError:
        return None
    try:
        return os.fstat(handle).st_uid
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=at)


def give_mode(handle: int, mode: int) -> None:
    """Those permissions, whatever the umask was; the group's mark of a folder stays."""
    before = os.fstat(handle).st_mode
    wanted = mode | (before & stat.S_ISGID)
    if stat.S_IMODE(before) != wanted:
        with contextlib.suppress(PermissionError):  # a file system that has modes of its own
            os.fchmod(handle, wanted)


def new_folder(name: str, at: int, mode: int) -> int:
    """Made, and open; FileExistsError where something is there."""
    os.mkdir(name, mode, dir_fd=at)
    handle = folder(name, at)
    give_mode(handle, mode)
    return handle


def new_file(name: str, at: int, mode: int = 0o600) -> int:
    """Made, and open for writing; FileExistsError where something is there."""
    return os.open(name, _NEW, mode, dir_fd=at)


def replace(name: str, text: str, at: int, mode: int = 0o600, *, sync: bool = False) -> None:
    """The old file or the new, never half of one; with `sync` also after a power cut."""
    content = text.encode("utf-8", "surrogateescape")
    temporary = f"{name}.dshpc-tmp"
    with contextlib.suppress(FileNotFoundError):  # of a run that was killed
        os.unlink(temporary, dir_fd=at)
    handle = new_file(temporary, at, mode)
    try:
        with open(handle, "wb") as out:
            out.write(content)
            if sync:
                out.flush()
                os.fsync(handle)
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=at)
        raise
    if sync:
        os.fsync(at)
