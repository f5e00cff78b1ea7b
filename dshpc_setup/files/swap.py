"""A text put where another stands, without losing what a person writes there at that moment.

What stood there comes out in one step (renameat2 with RENAME_EXCHANGE) and is looked at only then: where
it is not what was expected, or somebody has it open for writing, it goes back. File systems without that
call (9p, NFS, FAT) have it taken out and put back by renames, with no name replaced by either.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path

from dshpc_setup.errors import DshpcError
from dshpc_setup.files import ownership
from dshpc_setup.files.anchored import anchored, open_file
from dshpc_setup.files.atomic import read_plain, remove, sync_folder, write_error, write_temporary

KEPT = ".dshpc-kept"  # behind the name: a person's text whose place another one has taken meanwhile
_NOREPLACE, _EXCHANGE = 1, 2  # renameat2(2)
_AT_FDCWD = -100
_HAS_NOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)
_MOST_KEPT = 1000


def write(
    path: Path,
    text: str,
    old: str | None,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
) -> None:
    """The text instead of `old` (None: there is no such file), in one step.

    Raises DshpcError where something else stands there by now, which stays, and where it cannot be written.
    """
    temporary = write_temporary(path, text, mode, owner)
    try:
        found = put(temporary, path, None if old is None else ownership.digest(old))
    except BaseException:
        remove(temporary)
        raise
    if found is not None:
        remove(temporary)
        raise changed_meanwhile(path)
    sync_folder(path.parent)


def changed_meanwhile(path: Path) -> DshpcError:
    """For a file of people's own that is another than the one that was read."""
    return DshpcError(
        f"{path} was changed while this ran.", "Nothing was written.", ("Run this again.",)
    )


def put(temporary: Path, final: Path, expected: str | None) -> bytes | None:
    """`temporary` becomes `final`, where a text of that digest is expected (None: no file).

    None: it is done. Else what a person has written there: that stays, and so does `temporary`.
    Raises DshpcError where it cannot be written.
    """
    try:
        with anchored(final.parent) as at:
            return _put(at / temporary.name, at / final.name, expected)
    except OSError as error:
        raise write_error(error, final) from None


def _put(temporary: Path, final: Path, expected: str | None) -> bytes | None:
    new = _digest(temporary)
    if expected is None:
        return _put_new(temporary, final)
    try:
        rename_exchange(temporary, final)
    except FileNotFoundError:  # taken away meanwhile: as if it had never been there
        return _put_new(temporary, final)
    except OSError as error:
        if error.errno not in _HAS_NOT:
            raise
        return _put_by_steps(temporary, final, expected)
    return _settled(temporary, final, expected, new)


def finish(temporary: Path, final: Path, expected: str | None, new: str) -> bytes | None:
    """As `put`, of a run that died in it: `new` is the digest of the text that it was putting there."""
    try:
        with anchored(final.parent) as at:
            return _finish(at / temporary.name, at / final.name, expected, new)
    except OSError as error:
        raise write_error(error, final) from None


def _finish(temporary: Path, final: Path, expected: str | None, new: str) -> bytes | None:
    aside = _aside(final)
    if os.path.lexists(aside):
        if not os.path.lexists(final) or _digest(aside) != expected:
            _back(aside, final)
        else:
            aside.unlink()
    if _identity(temporary) in (None, _identity(final)):  # a link that was not taken away
        temporary.unlink(missing_ok=True)
        return None
    if _digest(temporary) == new:
        return _put(temporary, final, expected)
    return _settled(temporary, final, expected, new)


def _settled(out: Path, final: Path, expected: str | None, new: str) -> bytes | None:
    """Whether what came out may go; else it is put back, and its text returned."""
    text = _read(out)
    if ownership.digest_of(text) == expected and not _is_being_written(out):
        out.unlink()
        return None
    try:
        rename_exchange(out, final)
        if (
            _digest(out) != new
        ):  # a third text, saved over ours or into it meanwhile: it is the newest
            rename_exchange(out, final)
            _keep(out, final)
            return _read(final)
    except FileNotFoundError:  # taken away in this moment
        _back(out, final)
    return text


def _put_new(temporary: Path, final: Path) -> bytes | None:
    """Where no file is expected: the one that is there nevertheless is somebody's."""
    try:
        rename_noreplace(temporary, final)
    except FileExistsError:
        return _read(final)
    return None


def _put_by_steps(temporary: Path, final: Path, expected: str) -> bytes | None:
    aside = _aside(final)
    if os.path.lexists(aside):
        _keep(aside, final)
    try:
        os.rename(final, aside)
    except FileNotFoundError:
        return _put_new(temporary, final)
    text = _read(aside)
    if ownership.digest_of(text) != expected or _is_being_written(aside):
        _back(aside, final)
        return text
    found = _put_new(temporary, final)
    aside.unlink()
    return found


def _back(aside: Path, final: Path) -> None:
    """To its place; where another text has been saved there meanwhile, beside that."""
    try:
        rename_noreplace(aside, final)
    except FileExistsError:
        _keep(aside, final)


def _keep(text: Path, final: Path) -> None:
    for number in range(1, _MOST_KEPT):
        try:
            return rename_noreplace(text, final.with_name(f"{final.name}{KEPT}-{number}"))
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, f"there are too many {KEPT} beside it", str(final))


def _aside(final: Path) -> Path:
    return final.with_name(f".{final.name}.dshpc-was")


def _read(path: Path) -> bytes:
    """Links are followed, by root those of root; what is no file has no text."""
    return (read_plain(path) or b"") if path.is_file() else b""


def _digest(path: Path) -> str:
    return ownership.digest_of(_read(path))


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _is_being_written(path: Path) -> bool:
    """Whether somebody has it open for writing: the kernel lends it for reading where nobody has."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    handle = open_file(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # which ends nobody, as SIGIO would
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN  # the others: not the owner, no leases there
    finally:
        os.close(handle)
    return False


def rename_exchange(one: Path, other: Path) -> None:
    """Both names change their files in one step; OSError where the file system cannot."""
    _renameat2(one, other, _EXCHANGE)


def rename_noreplace(old: Path, new: Path) -> None:
    """Raises FileExistsError where the new name is taken."""
    try:
        _renameat2(old, new, _NOREPLACE)
        return
    except OSError as error:
        if error.errno not in _HAS_NOT:
            raise
    try:
        os.link(old, new, follow_symlinks=False)
    except PermissionError:  # no links there either: as near as it can be done
        if os.path.lexists(new):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new)) from None
        os.rename(old, new)
    else:
        os.unlink(old)


def _renameat2(old: Path, new: Path, flags: int) -> None:
    call = _library_call()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(new))
    if call(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(new))


@functools.cache
def _library_call() -> Callable[..., int] | None:
    """glibc has it since 2.28."""
    found = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if found is not None:
        found.argtypes = (
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        )
    return found
