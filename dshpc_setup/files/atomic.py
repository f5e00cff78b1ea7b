"""Writing files so that a crash, a full disk or Ctrl-C leaves the old text or the new, never half."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
from pathlib import Path

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files.anchored import anchored, open_file

_TEMPORARY = ".dshpc-tmp"
_PRIVATE = os.O_NOFOLLOW | os.O_CLOEXEC
_REFUSED = (errno.EACCES, errno.EPERM)
_WHY = {
    errno.ENOSPC: ("the disk is full", "Free some space on that disk and run again."),
    errno.EDQUOT: ("your disk quota is used up", "Free some space and run again."),
    errno.EROFS: (
        "the file system is read-only",
        "Choose a folder that can be written: --dir DIR.",
    ),
    errno.ELOOP: (
        "its path has a link that another user can have made, and root follows none",
        "Run this without sudo, or put what the link leads to in its place.",
    ),
    errno.ENOENT: ("there is no such folder", "Make that folder, or name another."),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", "Move that file away."),
}


def write_error(error: OSError, path: Path | str) -> DshpcError:
    """The OSError of a write as an error for people; nothing was changed."""
    if error.errno in _REFUSED:
        return _not_yours(Path(path))
    why, step = _WHY.get(
        error.errno or 0, (error.strerror or str(error), "Fix that and run again.")
    )
    return DshpcError(f"Cannot write {path}: {why}.", str(error), (step,))


def read_error(error: OSError | UnicodeDecodeError, path: Path | str) -> DshpcError:
    """Why a text that people write cannot be read, as an error for them."""
    if isinstance(error, UnicodeDecodeError):
        return DshpcError(
            f"Cannot read {path}: it is not UTF-8 text.",
            str(error),
            ("Save it as UTF-8 text.",),
            Exit.USAGE,
        )
    if error.errno not in _REFUSED:
        why = error.strerror or str(error)
        return DshpcError(
            f"Cannot read {path}: {why}.",
            "",
            (
                "Name a file that is there."
                if error.errno == errno.ENOENT
                else "Make it a regular file that you may read.",
            ),
            Exit.USAGE,
        )
    whose, owner = _owner(Path(path))
    step = f"Ask {owner} for access to it, or run this as that user."
    if owner == _ME:
        step = f"Allow yourself to read it: chmod u+r {shlex.quote(str(path))}"
    return DshpcError(f"Cannot read {path}: permission denied.", whose, (step,), Exit.USAGE)


def _not_yours(path: Path) -> DshpcError:
    """A file is replaced, not written over: what counts is the folder, unless one may write there."""
    at = path.parent
    while not _seen(at) and at != at.parent:
        at = at.parent
    at = path if os.access(at, os.W_OK | os.X_OK) and path.exists() else at
    whose, owner = _owner(at)
    step = f"Ask {owner} to make this change, or run it as that user."
    if owner == _ME:
        step = f"Allow yourself to write there: chmod u+w {shlex.quote(str(at))}"
    return DshpcError(
        f"Cannot write {path}: permission denied.",
        whose,
        (step, "Or use a folder of your own: --dir DIR."),
    )


_ME = "you"


def _owner(path: Path) -> tuple[str, str]:
    """Whose it is as a sentence, and who that is; of what may not be looked at nothing is known."""
    try:
        seen = path.stat()
    except OSError:
        return f"You may not look at {path}.", "its owner"
    name = _ME if seen.st_uid == os.geteuid() else _user(seen.st_uid)
    return f"{path} belongs to {name} (mode {stat.S_IMODE(seen.st_mode):04o}).", name


def _user(uid: int) -> str:
    import pwd

    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
    return name if uid == 0 else f"the user {name}"


def _seen(path: Path) -> bool:
    """Whether it is there; not where a folder above it is closed to us."""
    try:
        return path.exists()
    except PermissionError:
        return False


def make_folder(path: Path, owner: tuple[int, int] | None = None, mode: int = 0o755) -> None:
    """The folder and its missing parents, those made here belonging to `owner` (uid, gid)."""
    missing = []
    at = path
    try:
        while not at.exists():  # which raises in a folder that is closed to us
            missing.append(at.name)
            at = at.parent
        for name in reversed(missing):
            _make_one(at, name, owner, mode)
            at = at / name
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(path))
    except OSError as error:
        raise write_error(error, path) from None


def _make_one(above: Path, name: str, owner: tuple[int, int] | None, mode: int) -> None:
    with anchored(above) as at:
        (at / name).mkdir(mode=mode)
        if owner is None:
            return
        made = os.open(at / name, os.O_RDONLY | os.O_DIRECTORY | _PRIVATE)
        try:
            if os.listdir(made):  # what was made is empty: this was put in its place
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(above / name))
            os.fchown(made, *owner)
        finally:
            os.close(made)


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
        with anchored(final.parent) as at:
            here = at / temporary.name
            handle = os.open(here, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PRIVATE, 0o600)
            try:
                with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(text)
                    file.flush()
                    _give_mode(file.fileno(), mode)
                    if owner is not None:
                        os.fchown(file.fileno(), *owner)
                    os.fsync(file.fileno())
            except BaseException:
                here.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise write_error(error, final) from None
    return temporary


def read_plain(path: Path) -> bytes | None:
    """A plain file, None where there is none; raises OSError for what is none: a pipe would be waited for."""
    try:
        handle = open_file(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
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
        replace(temporary, path)
    except OSError as error:
        remove(temporary)
        raise write_error(error, path) from None
    sync_folder(path.parent)


def replace(temporary: Path, final: Path) -> None:
    """Give a file the name of one beside it; raises OSError."""
    with anchored(final.parent) as at:
        os.replace(at / temporary.name, at / final.name)


def remove(path: Path) -> None:
    """The file of that name, where there is one; raises OSError."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), anchored(path.parent) as at:
        os.unlink(at / path.name)


def sync_folder(folder: Path) -> None:
    """Make the renames in `folder` outlive a power cut."""
    with anchored(folder) as at:
        handle = os.open(at, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
