"""The compose file on disk: read as it is, a copy kept beside it, replaced in one step."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.files import swap
from dshpc_setup.files.atomic import write_atomic

BACKUP = ".dshpc-backup"
NAMES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
_MOST_BYTES = 4 * 1024 * 1024
_MOST_BACKUPS = 1000


@dataclass(frozen=True)
class ComposeText:
    """The file as it was read; `path` is where the text lies, links followed."""

    named: Path
    path: Path
    text: str
    mode: int
    owner: tuple[int, int]
    links: int


def read(named: Path) -> ComposeText:
    """Raises DshpcError (usage) where there is no such file, and for one that is no UTF-8 text."""
    path = Path(os.path.realpath(named))
    try:
        # not to wait where it is a pipe that nobody writes to
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise _no_file(named, path)
        with os.fdopen(handle, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise usage_error(f"There is no file {named}.", "", "Name a compose file.") from None
    except OSError as error:
        denied = isinstance(error, PermissionError)
        todo = "Run this as a user who may read it." if denied else "Name a compose file."
        raise DshpcError(f"Cannot read {named}.", error.strerror or str(error), (todo,)) from None
    if len(raw) > _MOST_BYTES:
        raise usage_error(f"{named} is too large for a compose file.", "", "Name a compose file.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DshpcError(
            f"{named}:{line}: this is not UTF-8 text.",
            f"Byte 0x{raw[error.start]:02x} at offset {error.start}: {error.reason}.",
            ("Save the file as UTF-8, then run this again.",),
        ) from None
    mode = stat.S_IMODE(status.st_mode)
    owner = (status.st_uid, status.st_gid)
    return ComposeText(named, path, text, mode, owner, status.st_nlink)


def _no_file(named: Path, path: Path) -> DshpcError:
    if not path.is_dir():
        return usage_error(f"{named} is not a file.", "", "Name a compose file.")
    there = [name for name in NAMES if (path / name).is_file()]
    todo = [f"Name it: {named / name}" for name in there] or ["Name the compose file in it."]
    return usage_error(f"{named} is a folder.", "", *todo)


def need_writable(found: ComposeText) -> None:
    """Raises DshpcError where the file could not be replaced by one with the same owner and mode."""
    folder = found.path.parent
    uid, gid = found.owner
    todo = "Run this as its owner, or see what to write: add --dry-run --diff."
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        why = f"The file system that holds {folder} can only be read."
        todo = "Make it writable, or see what to write: add --dry-run --diff."
    elif not os.access(found.path, os.W_OK):
        why = "You may not write to it."
    elif not os.access(folder, os.W_OK | os.X_OK):
        why = f"You may not write to its folder {folder}, where the new text is prepared."
    elif os.geteuid() != 0 and (uid != os.geteuid() or gid not in (os.getegid(), *os.getgroups())):
        why = "It belongs to another user or group, who would lose it."
    else:
        return
    raise DshpcError(f"Cannot change {found.named}.", why, (todo,))


def replace(found: ComposeText, text: str) -> Path:
    """Write the new text, the old one kept beside it: the backup. Owner, mode and links stay.

    Raises DshpcError where the file is no longer what was read, and where it cannot be written.
    """
    with _alone(found):
        now = read(found.named)
        if (now.path, now.text) != (found.path, found.text):
            raise _changed(found)
        kept = _keep(found)
        # what was given to it, or taken from it, while a question waited for its answer stays so
        swap.write(found.path, text, found.text, now.mode, now.owner)
    return kept


@contextmanager
def _alone(found: ComposeText) -> Iterator[None]:
    """No second run replaces the file meanwhile; where the file system has no locks, as far as it can.

    The lock is that of the file that is replaced: who waited for it finds another text there.
    """
    try:
        handle = os.open(found.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        raise _changed(found) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = f"Another run is about to change {found.named}."
            todo = "Wait until it has ended, then run this again."
            raise DshpcError(what, "Nothing was written.", (todo,)) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)


def _changed(found: ComposeText) -> DshpcError:
    return DshpcError(
        f"{found.named} was changed while this ran.", "Nothing was written.", ("Run this again.",)
    )


def backup_path(found: ComposeText) -> tuple[Path, bool]:
    """Where the old text is kept, and whether it is there already: an older backup is never lost."""
    for number in range(1, _MOST_BACKUPS):
        path = found.path.with_name(
            f"{found.path.name}{BACKUP}{'' if number == 1 else f'.{number}'}"
        )
        if not os.path.lexists(path):
            return path, False
        try:
            if path.is_file() and path.read_bytes() == found.text.encode():
                return path, True
        except OSError:
            continue
    raise DshpcError(
        f"There are too many backups of {found.path}.",
        f"{_MOST_BACKUPS - 1} of them, all different.",
        ("Delete those that you do not need, then run this again.",),
    )


def _keep(found: ComposeText) -> Path:
    path, there = backup_path(found)
    if not there:
        write_atomic(path, found.text, found.mode, found.owner)
    return path
