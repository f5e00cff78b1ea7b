"""Where an image's parts are read: a folder, or a tar that is looked through once. By their names, as
they tell."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Protocol

from dshpc_setup.builtin.archive import ArchiveError, Tail, most_bytes, parts_of
from dshpc_setup.documents import foreign
from dshpc_setup.oci import packing
from dshpc_setup.oci.model import ImageError

_MOST_MEMBERS = 100_000
_MOST_DOCUMENT = 4 << 20
_MOST_LINKS = 8
_BLOCK = 1 << 20


class Source(Protocol):
    def has(self, name: str) -> bool: ...

    def size(self, name: str) -> int:
        """In bytes; raises ImageError."""

    def opened(self, name: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """A part, to be read from its beginning; raises ImageError."""


def document(source: Source, name: str) -> tuple[bytes, object]:
    """A part that is JSON, as it stands there and as a value; raises ImageError."""
    if source.size(name) > _MOST_DOCUMENT:
        raise ImageError("no-image", f"{name} is larger than {_MOST_DOCUMENT >> 20} MiB")
    with source.opened(name) as file:
        text = file.read(_MOST_DOCUMENT + 1)
    try:
        return text, foreign.value(text)
    except ValueError as error:
        raise ImageError("no-image", f"{name}: {error}") from None


class Folder:
    """An OCI layout, or an unpacked archive."""

    def __init__(self, top: Path) -> None:
        self._top = top

    def has(self, name: str) -> bool:
        return self._place(name).is_file()

    def size(self, name: str) -> int:
        try:
            seen = self._place(name).stat()
        except OSError as error:
            raise ImageError("truncated", f"{name}: {error.strerror}") from None
        if not stat.S_ISREG(seen.st_mode):
            raise ImageError("no-image", f"{name} is no file")
        return seen.st_size

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        self.size(name)  # a pipe would be waited for
        try:
            with open(self._place(name), "rb") as file:
                yield file
        except PermissionError as error:
            raise ImageError("no-image", f"{name}: {error.strerror}") from None

    def _place(self, name: str) -> Path:
        return self._top.joinpath(*_parts(name))


class Tar:
    """A plain tar; each part is a piece of it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._whole = os.fstat(file.fileno()).st_size
        self._pieces: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        try:
            with tarfile.TarFile(fileobj=Tail(file), mode="r") as tar:  # type: ignore[arg-type]
                for count, member in enumerate(tar):
                    if count >= _MOST_MEMBERS:
                        raise ImageError("no-image", f"it has more than {_MOST_MEMBERS} parts")
                    self._note(member)
        except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
            raise ImageError("truncated" if self._pieces else "no-image", str(error)) from None

    def _note(self, member: tarfile.TarInfo) -> None:
        name = "/".join(_parts(member.name))
        if member.isreg() and not member.sparse:
            if member.offset_data + member.size > self._whole:
                raise ImageError("truncated", name)
            self._pieces[name] = (member.offset_data, member.size)
        elif member.issym() or member.islnk():  # old archives of Docker's have a layer once
            above = "" if member.islnk() else os.path.dirname(name)
            self._links[name] = os.path.normpath(os.path.join(above, member.linkname))

    def has(self, name: str) -> bool:
        return self._plain(name) in self._pieces

    def size(self, name: str) -> int:
        return self._piece(name)[1]

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes]]:
        yield _Piece(self._file, *self._piece(name))  # type: ignore[misc]

    def _piece(self, name: str) -> tuple[int, int]:
        found = self._pieces.get(self._plain(name))
        if found is None:
            raise ImageError("truncated", f"there is no {name}")
        return found

    def _plain(self, name: str) -> str:
        plain = "/".join(_parts(name))
        for _ in range(_MOST_LINKS):
            plain = self._links.get(plain, plain)
        return plain


class _Piece:
    """A part of a file, as a file that goes forward alone."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._at, self._end = file, start, start + size

    def read(self, size: int = -1) -> bytes:
        left = self._end - self._at
        self._file.seek(self._at)
        block = self._file.read(left if size < 0 else min(size, left))
        self._at += len(block)
        return block


@contextlib.contextmanager
def of_file(path: Path, scratch: Path) -> Iterator[Source]:
    """What lies at that path; a tar that is packed is unpacked in `scratch` first. Raises
    ImageError."""
    if path.is_dir():
        yield Folder(path)
        return
    with open(path, "rb") as file, packing.plain(file) as unpacked:
        if not packing.is_packed(unpacked):
            file.seek(0)
            yield Tar(file)
            return
        with tempfile.TemporaryFile(dir=scratch) as plain:
            _unpack(unpacked, plain, most_bytes(os.fstat(file.fileno()).st_size))
            yield Tar(plain)


def _unpack(source: IO[bytes], plain: IO[bytes], most: int) -> None:
    try:
        while block := source.read(_BLOCK):
            most -= len(block)
            if most < 0:
                raise ImageError("too-large", "the archive itself")
            plain.write(block)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ImageError("truncated", str(error)) from None
    plain.flush()
    plain.seek(0)


def _parts(name: str) -> tuple[str, ...]:
    try:
        return parts_of(name)
    except ArchiveError as error:
        raise ImageError("unsafe", error.what) from None
