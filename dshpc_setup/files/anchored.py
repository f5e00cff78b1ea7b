"""A folder that root works in for somebody else, held open: what is swapped for a link leads nowhere.

Root by sudo writes in folders of who called it, who can put a link in the place of anything there at any
moment. So root opens each part of a path in the one before it, follows a link only where nobody but root
can have made it, and works through the descriptor then, whatever stands at the path by that time.
Everybody else has no rights to lend, and works by the path.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

_HELD = re.compile(r"(/proc/self/fd/[0-9]+)(?:/(.*))?", re.DOTALL)
_PLACE = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS = 40
_OTHERS_WRITE = 0o022


@contextlib.contextmanager
def anchored(folder: Path) -> Iterator[Path]:
    """The folder by a path that leads to it alone while this lasts; `folder` itself where we are not root.

    Raises OSError where it is not there, or where its path has a link of another user's.
    """
    if not _is_needed():
        yield folder
        return
    handle = _folder(str(folder))
    at = f"/proc/self/fd/{handle}"
    try:
        yield Path(at)
    except OSError as error:
        for name in ("filename", "filename2"):  # people know it by its path
            text = getattr(error, name, None)
            if isinstance(text, str) and text.startswith(f"{at}/"):
                setattr(error, name, f"{folder}{text[len(at) :]}")
        raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def new_folder(prefix: str, above: Path) -> Iterator[tuple[str, Path]]:
    """One that nobody else can write in, in a folder that is held: its name there, and it by a path as
    `anchored` gives. What still has that name at the end is removed."""
    import shutil
    import tempfile

    made = Path(tempfile.mkdtemp(prefix=prefix, dir=above))
    try:
        with anchored(made) as at:
            if at.stat().st_uid not in (os.geteuid(), _given(above)):
                raise FileExistsError(
                    errno.EEXIST, "another folder was put in its place", str(made)
                )
            yield made.name, at
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _given(folder: Path) -> int:
    """Who owns what we make there: file systems of other systems have owners of their own."""
    import tempfile

    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_uid


def open_file(path: Path, flags: int) -> int:
    """A file that is there, open; the last part may be a link, under the same condition."""
    if not _is_needed():
        return os.open(path, flags)
    text = str(path)
    for _ in range(_MOST_LINKS):
        parent, name = os.path.split(text)
        at = _folder(parent or ".")
        try:
            place = os.open(name or ".", _PLACE, dir_fd=at)
            try:
                seen = os.fstat(place)
                if not stat.S_ISLNK(seen.st_mode):
                    # What was looked at is what is opened
                    return os.open(f"/proc/self/fd/{place}", flags & ~os.O_NOFOLLOW)
                if flags & os.O_NOFOLLOW or not _is_roots(at, seen):
                    raise _refused(text)
                text = os.path.join(parent, os.readlink("", dir_fd=place))
            finally:
                os.close(place)
        finally:
            os.close(at)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _is_needed() -> bool:
    return os.geteuid() == 0 and hasattr(os, "O_PATH") and os.path.isdir("/proc/self/fd")


def _folder(path: str) -> int:
    """Open as a place, neither to be read nor written itself."""
    held = _HELD.fullmatch(path)
    if held is not None:
        at = os.open(held[1], _PLACE & ~os.O_NOFOLLOW | os.O_DIRECTORY)
        parts = (held[2] or "").split("/")
    else:
        at = os.open("/", _PLACE | os.O_DIRECTORY)
        parts = os.path.join(os.getcwd(), path).split("/")
    parts.reverse()
    links = 0
    try:
        while parts:
            part = parts.pop()
            if part in ("", "."):
                continue
            place = os.open(part, _PLACE, dir_fd=at)
            try:
                seen = os.fstat(place)
                if stat.S_ISLNK(seen.st_mode):
                    links += 1
                    if links > _MOST_LINKS or not _is_roots(at, seen):
                        raise _refused(path)
                    text = os.readlink("", dir_fd=place)
                    parts.extend(reversed(text.split("/")))
                    start = "/" if text.startswith("/") else "."
                    place, link = os.open(start, _PLACE, dir_fd=at), place
                    os.close(link)
                elif not stat.S_ISDIR(seen.st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            except BaseException:
                os.close(place)
                raise
            # In this order: a Ctrl-C between the two must not let it be closed twice
            at, above_it = place, at
            os.close(above_it)
    except BaseException:
        os.close(at)
        raise
    return at


def _is_roots(at: int, link: os.stat_result) -> bool:
    """Whether nobody but root can have laid the link there."""
    folder = os.fstat(at)
    others = folder.st_mode & _OTHERS_WRITE and not folder.st_mode & stat.S_ISVTX
    return link.st_uid == 0 == folder.st_uid and not others


def _refused(path: str) -> OSError:
    return OSError(
        errno.ELOOP,
        "there is a link in it that another user can have made: root follows none",
        path,
    )
