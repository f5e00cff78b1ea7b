"""A package of Debian's as a file (deb(5)): an ar archive with two tar archives in it."""

from __future__ import annotations

import contextlib
import gzip
import io
import lzma
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from dshpc_setup.debian.faults import DebianError
from dshpc_setup.machine import Machine

_MAGIC = b"!<arch>\n"
_HEADER = 60
_UNZIP_S = 120.0
_END = b"`\n"
Part = Literal["control.tar", "data.tar"]


@dataclass(frozen=True)
class Member:
    """A member of an ar archive: its name, and where it lies in the file."""

    name: str
    offset: int
    size: int


def members(file: IO[bytes]) -> tuple[Member, ...]:
    """Of an ar archive, in its order; DebianError for what is none or is not whole."""
    end = file.seek(0, io.SEEK_END)
    file.seek(0)
    if file.read(len(_MAGIC)) != _MAGIC:
        raise DebianError("deb", "not an ar archive")
    found = []
    at = len(_MAGIC)
    while at < end:
        file.seek(at)
        head = file.read(_HEADER)
        size = head[48:58].strip()
        if len(head) < _HEADER or head[58:] != _END or not size.isdigit():
            raise DebianError("deb", "a damaged ar archive")
        at += _HEADER
        if at + int(size) > end:
            raise DebianError("deb", "it ends early")
        name = head[:16].decode("ascii", errors="replace").rstrip().rstrip("/")
        found.append(Member(name, at, int(size)))
        at += int(size) + int(size) % 2
    return tuple(found)


class _Range(io.RawIOBase):
    """A part of a file. tarfile goes back by a byte at times, and so it can be sought in."""

    def __init__(self, file: IO[bytes], member: Member) -> None:
        super().__init__()
        self._file, self._first, self._size = file, member.offset, member.size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = min(max(0, base + offset), self._size)
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        self._file.seek(self._first + self._at)
        block = self._file.read(min(len(view), self._size - self._at))
        view[: len(block)] = block
        self._at += len(block)
        return len(block)


@contextlib.contextmanager
def opened(machine: Machine, path: Path, part: Part) -> Iterator[IO[bytes]]:
    """One of the two tar archives, unpacked while it is read; DebianError, also for what is not known.

    zstd takes its program: Python has it from 3.14 on.
    """
    with open(path, "rb") as file:
        member = next((each for each in members(file) if each.name.startswith(part)), None)
        if member is None:
            raise DebianError("deb", f"{path.name} has no {part}")
        raw: IO[bytes] = io.BufferedReader(_Range(file, member), 1 << 18)
        with contextlib.ExitStack() as stack:
            yield stack.enter_context(_plain(machine, raw, member.name.removeprefix(part)))


@contextlib.contextmanager
def _plain(machine: Machine, raw: IO[bytes], suffix: str) -> Iterator[IO[bytes]]:
    match suffix:
        case "":
            yield raw
        case ".gz":
            with gzip.GzipFile(fileobj=raw) as unzipped:
                yield unzipped  # type: ignore[misc]
        case ".xz":
            with lzma.LZMAFile(raw) as unzipped_xz:
                yield unzipped_xz
        case ".zst":
            if machine.which("zstd") is None:
                raise DebianError("no-zstd")
            with tempfile.TemporaryDirectory(prefix="dshpc-deb.") as made:
                packed, plain = Path(made, "packed"), Path(made, "plain")
                with open(packed, "wb") as file:
                    shutil.copyfileobj(raw, file)
                argv = ["zstd", "-q", "-d", "-o", str(plain), "--", str(packed)]
                done = machine.run(argv, deadline_s=_UNZIP_S)
                if not done.ok:
                    raise DebianError("deb", done.text[-500:])
                with open(plain, "rb") as file:
                    yield file
        case _:
            raise DebianError("deb", f"packed in a way that is not known: {suffix}")
