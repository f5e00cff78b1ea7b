"""Small files of the state volume and of /etc: replaced in one step, never half written."""

from __future__ import annotations

import os
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
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
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
