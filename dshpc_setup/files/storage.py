"""Small files of the state volume and of /etc: replaced in one step, never half written."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import TextIO

from dshpc_setup.errors import DshpcError, Fix


def read_text(path: str) -> str | None:
    """The text with its own line ends, None where there is no such file; else an OSError.

    What was read is hashed and compared with what the host has read.
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def replace_bytes(
    path: str,
    content: bytes,
    mode: int = 0o644,
    owner: tuple[int, int] | None = None,
    *,
    sync: bool = True,
) -> None:
    """Old content or new, with `sync` also after a power cut; DshpcError where that fails."""
    temporary = f"{path}.dshpc-tmp"
    try:
        with os.fdopen(_new(temporary), "wb") as file:
            handle = file.fileno()
            file.write(content)
            file.flush()
            os.fchmod(handle, mode)
            if owner is not None:
                os.fchown(handle, *owner)
            if sync:
                os.fsync(handle)
            os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from None


def _new(path: str) -> int:
    """A file made anew, open for writing and locked as long: what stands there, a link too, is left of a
    writer that was killed, or is one's who writes now and is waited for."""
    while True:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            _remove_left(path)
            continue
        _lock(handle)
        if _is_at(handle, path):
            return handle
        os.close(handle)


def _remove_left(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            os.unlink(path)
            return
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            _lock(handle)
            if _is_at(handle, path):
                os.unlink(path)
        finally:
            os.close(handle)


def _lock(handle: int) -> None:
    with contextlib.suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX)


def _is_at(handle: int, path: str) -> bool:
    """Whether the file still has that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def replace_text(path: str, text: str, mode: int = 0o644, *, sync: bool = True) -> None:
    replace_bytes(path, text.encode("utf-8", "surrogateescape"), mode, sync=sync)


def open_lock(path: str) -> TextIO:
    """A file to be locked. Whoever may open it could hold the lock for ever: root alone may."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW, 0o600)

    return open(path, "a", encoding="utf-8", opener=opener)


def cannot_write(path: str, error: OSError) -> DshpcError:
    return DshpcError(
        f"The container cannot write {path}: {error.strerror or error}.",
        "Its volumes must be writable and the disk that Docker keeps them on must have room.",
        (
            Fix("See what is full", "docker system df; df -h", step="look"),
            "Then start the container again.",
        ),
    )
