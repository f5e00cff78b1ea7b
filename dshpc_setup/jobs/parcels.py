"""Files on their way between two machines: entries on a stream, written by no link and outside of nothing.

An entry is a head, a path and as many bytes as the head says. Both ends are programs of one user's, and what
comes is data all the same: a path with `..` in it, or through a link, is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.files import tree
from dshpc_setup.jobs import removal, safe_open

_HEAD = struct.Struct(">cIqQI")  # kind, mode, time, size, length of the path
_BLOCK = 1 << 18
_MOST_PATH = 1 << 14
_PART = ".dshpc-carried-"
_OLD_S = 86400.0  # of one that cannot be locked
_TRIES = 100  # to make one that is still there once it is held
FOLDER, FILE, LINK, GONE, LOG, MARK = b"d", b"f", b"l", b"x", b"a", b"m"
# Bytes of each: all but a file's are taken into memory
_MOST = {FOLDER: 0, FILE: 1 << 62, LINK: 1 << 14, GONE: 0, LOG: 1 << 20, MARK: 1 << 20}


@dataclass(frozen=True)
class Head:
    """`time` is in nanoseconds; of a LOG entry it is where in the log of this run its bytes begin."""

    kind: bytes
    path: str = ""
    mode: int = 0
    time: int = 0
    size: int = 0


class BrokenError(OSError):
    """The other side has ended."""


class StrangeError(BrokenError):
    """The other side says what is none of ours: what of it cannot be."""

    def __init__(self, fault: Literal["kind", "path", "size", "number"], what: str = "") -> None:
        super().__init__(0, f"the other side says what is none of ours: {fault}", what)
        self.fault = fault


class Sender:
    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def mark(self, word: str, text: bytes = b"") -> None:
        """No file, but something that the other side has to know."""
        self._head(Head(MARK, word, size=len(text)))
        self._write(text)

    def log(self, begin: int, block: bytes) -> None:
        self._head(Head(LOG, "", 0, begin, len(block)))
        self._write(block)

    def gone(self, path: str) -> None:
        self._head(Head(GONE, path))

    def text(self, path: str, content: bytes, mode: int = 0o600) -> None:
        self._head(Head(FILE, path, mode, 0, len(content)))
        self._write(content)

    def entry(self, place: str, entry: tree.Entry) -> bool:
        """Whether it was sent: what is neither file, folder nor link is not, nor what cannot be read."""
        mode, when = stat.S_IMODE(entry.seen.st_mode), entry.seen.st_mtime_ns
        if entry.is_folder:
            self._head(Head(FOLDER, place, mode))
            return True
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            if entry.is_link:
                target = os.fsencode(entry.link())
                self._head(Head(LINK, place, 0, when, len(target)))
                self._write(target)
                return True
            if entry.is_file:
                self._file(place, entry.file(), mode)
                return True
        return False

    def _file(self, place: str, handle: int, mode: int) -> None:
        """As long as it is now; one that gets shorter meanwhile ends in zeros, and is sent again later."""
        with open(handle, "rb") as file:
            found = os.fstat(handle)
            self._head(Head(FILE, place, mode, found.st_mtime_ns, found.st_size))
            left = found.st_size
            while left > 0:
                block = file.read(min(_BLOCK, left)) or bytes(min(_BLOCK, left))
                self._write(block)
                left -= len(block)

    def _head(self, head: Head) -> None:
        path = os.fsencode(head.path)
        self._write(_HEAD.pack(head.kind, head.mode, head.time, head.size, len(path)) + path)


def heads(read: Callable[[int], bytes]) -> Iterator[tuple[Head, Callable[[], Iterator[bytes]]]]:
    """Each entry with its content, which has to be taken before the next; raises BrokenError."""
    while first := read(1):
        raw = first + exactly(read, _HEAD.size - 1)
        kind, mode, when, size, length = _HEAD.unpack(raw)
        if kind not in _MOST:
            raise StrangeError("kind")
        if length > _MOST_PATH:
            raise StrangeError("path")
        if size > _MOST[kind]:
            raise StrangeError("size")
        head = Head(kind, os.fsdecode(exactly(read, length)), mode, when, size)
        content = _content(read, size)
        yield head, lambda content=content: content  # type: ignore[misc]
        for _ in content:  # what nobody wanted
            pass


def exactly(read: Callable[[int], bytes], size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        block = read(min(_BLOCK, size - len(found)))
        if not block:
            raise BrokenError(0, "the other side has ended")
        found += block
    return bytes(found)


def _content(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    while size > 0:
        block = read(min(_BLOCK, size))
        if not block:
            raise BrokenError(0, "the other side has ended")
        size -= len(block)
        yield block


def parts(path: str) -> tuple[str, ...]:
    """Raises StrangeError for a path that leads out, and for the folder itself."""
    found = tuple(path.split("/"))
    if not path or any(each in ("", ".", "..") for each in found) or "\0" in path:
        raise StrangeError("path", path)
    return found


def number(text: bytes) -> int:
    """What a mark says; raises StrangeError where it is none."""
    if not re.fullmatch(rb"[0-9]{1,18}", text):
        raise StrangeError("number")
    return int(text)


def is_part(name: str) -> bool:
    """Whether it is what a `Writer` has under way, or has left as it was killed."""
    return re.fullmatch(rf"{re.escape(_PART)}[0-9a-f]{{12}}", name) is not None


def drop_left(entry: tree.Entry) -> None:
    """Remove such a part, unless a writer holds it. A link has its name at once, and is held by nobody."""
    with contextlib.suppress(OSError):
        if entry.is_file:
            with open(entry.file(), "rb") as file:
                is_left = _is_left(file.fileno())
        else:
            is_left = _is_old(entry.seen)
        if is_left:
            os.unlink(entry.name, dir_fd=entry.at)


def drop_all_left(top: int, most: int) -> None:
    """Below an open folder, as far as it can be looked through."""
    with contextlib.suppress(OSError):
        for entry in tree.entries(top, most):
            if is_part(entry.name):
                drop_left(entry)


def _is_left(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # there are no locks
        return _is_old(os.fstat(handle))
    return True


def _is_old(seen: os.stat_result) -> bool:
    return time.time() - seen.st_ctime > _OLD_S


def _new_part(at: int) -> tuple[str, int]:
    """A file, open for writing, and held until it is closed. Who cleans meanwhile may take one that is not
    held yet for what a killed run has left: then it is another one."""
    for _ in range(_TRIES):
        part = _part_name()
        handle = safe_open.new_file(part, at)
        is_held = True
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            is_held = False
        except OSError:  # there are no locks
            pass
        if is_held and os.fstat(handle).st_nlink:
            return part, handle
        os.close(handle)
    raise BlockingIOError(11, os.strerror(11))


def _part_name() -> str:
    return f"{_PART}{os.urandom(6).hex()}"


class Writer:
    """Writes entries into an open folder. Folders are open to their owner until `finish` gives them their
    own modes."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._modes: dict[str, int] = {}

    def put(self, head: Head, content: Callable[[], Iterator[bytes]]) -> None:
        """Raises OSError; the old is there then, or the new."""
        *above, name = parts(head.path)
        if head.kind == GONE:
            # The folder that it lay in never came here, or has made place for something else
            with (
                contextlib.suppress(FileNotFoundError, NotADirectoryError),
                self._opened(tuple(above), make=False) as at,
            ):
                _remove(name, at)
            return
        with self._opened(tuple(above), make=True) as at:
            if head.kind == FOLDER:
                self._folder(head, name, at)
            else:
                self._new(head, name, at, content())

    def finish(self) -> None:
        for path, mode in sorted(self._modes.items(), reverse=True):
            with contextlib.suppress(OSError), self._opened(parts(path), make=False) as at:
                os.fchmod(at, mode)
        self._modes.clear()

    def seen(self, path: str) -> tuple[int, int] | None:
        """Size and time of a file that is there."""
        found = self._stat(path)
        return None if found is None else (found.st_size, found.st_mtime_ns)

    def is_folder(self, path: str) -> bool:
        found = self._stat(path)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def _stat(self, path: str) -> os.stat_result | None:
        *above, name = parts(path)
        try:
            with self._opened(tuple(above), make=False) as at:
                return os.stat(name, dir_fd=at, follow_symlinks=False)
        except OSError:
            return None

    def _folder(self, head: Head, name: str, at: int) -> None:
        try:
            os.mkdir(name, head.mode | 0o700, dir_fd=at)
        except FileExistsError:
            if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=at)
                os.mkdir(name, head.mode | 0o700, dir_fd=at)
        self._modes[head.path] = head.mode & 0o777

    def _new(self, head: Head, name: str, at: int, content: Iterator[bytes]) -> None:
        if head.kind == LINK:
            part = _part_name()
            os.symlink(os.fsdecode(b"".join(content)), part, dir_fd=at)
            _named(part, name, at)
            return
        part, handle = _new_part(at)
        with open(handle, "wb") as file:  # held until it has its name
            try:
                for block in content:
                    file.write(block)
                file.flush()
                os.fchmod(handle, head.mode & 0o777)
                if head.time:
                    os.utime(handle, ns=(head.time, head.time))
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=at)
                raise
            _named(part, name, at)

    @contextlib.contextmanager
    def _opened(self, above: tuple[str, ...], *, make: bool) -> Iterator[int]:
        with contextlib.ExitStack() as open_:
            at = self._top
            for name in above:
                at = _entered(name, at, make=make)
                open_.callback(os.close, at)
            yield at


def _named(part: str, name: str, at: int) -> None:
    """A whole part gets its name; nothing of it stays where it cannot."""
    try:
        try:
            os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
        except IsADirectoryError:
            removal.remove(name, at)
            os.rename(part, name, src_dir_fd=at, dst_dir_fd=at)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=at)
        raise


def _entered(name: str, at: int, *, make: bool) -> int:
    try:
        return safe_open.folder(name, at)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(name, 0o700, dir_fd=at)
        return safe_open.folder(name, at)


def _remove(name: str, at: int) -> None:
    """A folder only where nothing is left in it: others may have written there."""
    with contextlib.suppress(FileNotFoundError):
        try:
            os.unlink(name, dir_fd=at)
        except IsADirectoryError:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=at)
