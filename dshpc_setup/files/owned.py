"""Files of our own, read by who acts on what they say: nobody else may have written them."""

from __future__ import annotations

import os
import stat


def read_text(path: str | os.PathLike[str]) -> str:
    """The text of a file that belongs to this user and that no other can write.

    Raises OSError where it is anybody else's, a link, or no file; UnicodeDecodeError, a ValueError.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(handle, encoding="utf-8") as file:
        seen = os.fstat(handle)
        foreign = seen.st_uid != os.geteuid() or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if foreign or not stat.S_ISREG(seen.st_mode):
            raise PermissionError(f"{os.fspath(path)} is not a file of this user's alone")
        return file.read()
