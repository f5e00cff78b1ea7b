"""Writing files so that a crash, a full disk or Ctrl-C leaves the old text or the new, never half."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from dshpc_setup.errors import DshpcError

_TEMPORARY = ".dshpc-tmp"
_PRIVATE = os.O_NOFOLLOW | os.O_CLOEXEC
_WHY = {
    errno.ENOSPC: ("the disk is full", "Make room on that disk and run again."),
    errno.EDQUOT: ("your disk quota is used up", "Make room and run again."),
    errno.EROFS: (
        "the file system is read-only",
        "Choose a folder that can be written: --dir DIR.",
    ),
    errno.EACCES: (
        "you may not write there",
        "Choose a folder of your own with --dir DIR, or change its owner or permissions.",
    ),
    errno.EPERM: (
        "you may not write there",
        "Choose a folder of your own with --dir DIR, or change its owner or permissions.",
    ),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Move that file away."),
}


def write_error(error: OSError, path: Path | str) -> DshpcError:
    """The OSError of a write as an error for people; nothing was changed."""
    why, step = _WHY.get(
        error.errno or 0, (error.strerror or str(error), "Mend that and run again.")
    )
    return DshpcError(f"Cannot write {path}: {why}.", str(error), (step,))


def make_folder(path: Path, owner: tuple[int, int] | None = None, mode: int = 0o755) -> None:
    """The folder and its missing parents, those made here belonging to `owner` (uid, gid)."""
    missing = []
    at = path
    while not at.exists():
        missing.append(at)
        at = at.parent
    try:
        for folder in reversed(missing):
            folder.mkdir(mode=mode)
            if owner is not None:
                os.chown(folder, *owner, follow_symlinks=False)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path))
    except OSError as error:
        raise write_error(error, path) from None


def temporary_name(name: str) -> str:
    """Beside the file of that name; another at each call, so that nobody can be there before us."""
    return f".{name}.{os.urandom(6).hex()}{_TEMPORARY}"


def is_temporary(name: str, final: str) -> bool:
    """Whether it is one that a run which died left beside the file `final`; also of older versions."""
    return name.startswith(f".{final}.") and name.endswith(_TEMPORARY)


def write_temporary(
    final: Path, text: str, mode: int = 0o644, owner: tuple[int, int] | None = None
) -> Path:
    """A complete, synced file beside `final`, ready to be renamed over it.

    It is made anew, never one that is there: in a folder such as /tmp others can lay files and links.
    """
    temporary = final.with_name(temporary_name(final.name))
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PRIVATE, 0o600)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
                file.flush()
                _give_mode(file.fileno(), mode)
                if owner is not None:
                    os.fchown(file.fileno(), *owner)
                os.fsync(file.fileno())
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise write_error(error, final) from None
    return temporary


def read_plain(path: Path) -> bytes | None:
    """A plain file, None where there is none; raises OSError for what is none: a pipe would be waited for."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def _give_mode(handle: int, mode: int) -> None:
    """There are file systems that have modes of their own (WSL's /mnt/c): what everybody may read can
    be written there, a secret cannot."""
    try:
        os.fchmod(handle, mode)
    except PermissionError:
        if not mode & 0o004:
            raise


def write_atomic(
    path: Path, text: str, mode: int = 0o644, owner: tuple[int, int] | None = None
) -> None:
    """Replace `path` by `text` in one step."""
    temporary = write_temporary(path, text, mode, owner)
    try:
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise write_error(error, path) from None
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the renames in `folder` outlive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
