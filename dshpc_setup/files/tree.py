"""All that lies in a folder, part by part from the one above: no link is followed, and there is an end.

What a user's folder holds may be anything at any moment: a link where a file was, a folder in folders
without an end, a pipe. Each is judged once it is open.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Collection, Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
MOST_DEPTH = 50  # a descriptor each
_Rights = Callable[[], contextlib.AbstractContextManager[None]]


class TooLargeError(OSError):
    """More lies there than is looked at, or deeper."""


class Entry:
    """Something below the folder: `parts` are its names, `at` the folder that it lies in, open until the
    next one is asked for; `seen` is what it was like, which binds nobody."""

    def __init__(self, parts: tuple[str, ...], at: int, seen: os.stat_result) -> None:
        self.parts, self.at, self.seen = parts, at, seen

    @property
    def name(self) -> str:
        return self.parts[-1]

    @property
    def path(self) -> str:
        return "/".join(self.parts)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.seen.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.seen.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.seen.st_mode)

    def link(self) -> str:
        return os.readlink(self.name, dir_fd=self.at)

    def file(self) -> int:
        """Open for reading; raises OSError where it is a file no more."""
        return open_file(self.name, self.at)


def open_folder(name: str, at: int) -> int:
    return os.open(name, _FOLDER, dir_fd=at)


def open_file(name: str, at: int) -> int:
    """Raises OSError for what is no regular file."""
    handle = os.open(name, _FILE, dir_fd=at)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise IsADirectoryError(0, "it is not a file", name)
    return handle


def entries(
    top: int,
    most: int,
    passed_over: Collection[str] = (),
    rights: _Rights = contextlib.nullcontext,
) -> Iterator[Entry]:
    """Each thing below an open folder, sorted, a folder before what is in it; what is called as one of
    `passed_over` is not looked into. Raises OSError, TooLargeError beyond `most` of them."""
    left = itertools.count(most - 1, -1)

    def below(at: int, parts: tuple[str, ...]) -> Iterator[Entry]:
        if len(parts) >= MOST_DEPTH:
            raise TooLargeError(0, f"there are more than {MOST_DEPTH} folders in each other")
        with rights(), os.scandir(at) as found:
            names = sorted(entry.name for entry in itertools.islice(found, most + 1))
        for name in names:
            with rights():
                try:
                    seen = os.stat(name, dir_fd=at, follow_symlinks=False)
                except FileNotFoundError:  # removed just now
                    continue
            entry = Entry((*parts, name), at, seen)
            if entry.is_folder and name in passed_over:
                continue
            if next(left) < 0:
                raise TooLargeError(0, f"there are more than {most} files and folders")
            yield entry
            if entry.is_folder:
                with rights():
                    inner = open_folder(name, at)
                try:
                    yield from below(inner, entry.parts)
                finally:
                    os.close(inner)

    return below(top, ())
