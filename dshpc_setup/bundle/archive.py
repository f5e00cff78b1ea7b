"""A report as a tar.gz: written the same for the same files, read as if somebody wished us ill."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping

MOST_BYTES = 64 << 20  # unpacked, with all that is about the files
MOST_MEMBERS = 5000
_LONGEST_NAME = 300
_TIME = 315532800  # 1980-01-01: of the first day of 1970 tar says that it is implausible
_STEP = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


class ArchiveError(ValueError):
    """No archive that is read; the text says why, in words that follow "because"."""


def pack(top: str, files: Mapping[str, str]) -> bytes:
    """One folder `top` with the files in their order; of nobody, and of no time."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, text in files.items():
            data = text.encode()
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode, member.mtime = len(data), 0o644, _TIME
            tar.addfile(member, io.BytesIO(data))
    # A compression level and no time: the bytes are a function of the files
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=0)


def unpack(data: bytes) -> dict[str, str]:
    """Name below the one top folder -> text. Raises ArchiveError.

    Nothing is written: links, devices, absolute names and `..` are refused, as is what unpacks to
    more than it may.
    """
    plain = _decompressed(data)
    found: dict[str, str] = {}
    tops: set[str] = set()
    try:
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
            for member in _members(tar):
                if member.isdir():
                    continue
                top, _, name = _checked(member.name).partition("/")
                if not name:
                    raise ArchiveError(f"{_short(top)} is in no folder")
                tops.add(top)
                if len(tops) > 1:
                    raise ArchiveError(f"it holds more than one folder: {', '.join(sorted(tops))}")
                if name in found:
                    raise ArchiveError(f"it holds {name} twice")
                file = tar.extractfile(member)
                found[name] = (file.read() if file is not None else b"").decode()
    except ArchiveError:
        raise
    except UnicodeDecodeError as error:
        raise ArchiveError(f"a file in it is not UTF-8 text ({error.reason})") from None
    except (
        tarfile.TarError,
        ValueError,
        OverflowError,
        EOFError,
        OSError,
        RecursionError,
    ) as error:
        raise ArchiveError(f"it is no tar archive: {error}") from None
    return found


def _decompressed(data: bytes) -> bytes:
    """All of it in memory, which a small file that unpacks to terabytes is not to fill."""
    engine = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    pieces, size = [], 0
    try:
        rest = data
        while not engine.eof:
            piece = engine.decompress(rest, _STEP)
            rest = engine.unconsumed_tail
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                raise ArchiveError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
            if not piece and not rest:
                raise ArchiveError("its end is missing")
    except zlib.error as error:
        raise ArchiveError(f"it is not compressed by gzip: {error}") from None
    if engine.unused_data.strip(b"\0"):
        raise ArchiveError("something follows its end")
    return b"".join(pieces)


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Its files and folders, which are counted and measured before anything of them is read."""
    size = 0
    for number, member in enumerate(tar, 1):
        if number > MOST_MEMBERS:
            raise ArchiveError(f"it holds more than {MOST_MEMBERS} files")
        _checked(member.name)
        plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
        if not plain and not member.isdir():
            raise ArchiveError(f"{_short(member.name)} is no plain file")
        size += member.size
        if not 0 <= member.size <= MOST_BYTES or size > MOST_BYTES:
            raise ArchiveError(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
        yield member


def _checked(name: str) -> str:
    """A relative name of plain letters without `..`, with the "./" that tar writes taken off."""
    bare = name.removeprefix("./").rstrip("/") if name not in (".", "./") else "top"
    plain = _NAME.fullmatch(bare) is not None and len(bare) <= _LONGEST_NAME
    if not plain or any(part in (".", "..") for part in bare.split("/")):
        raise ArchiveError(f"the name {_short(name)} in it leads elsewhere, or is no plain one")
    return bare


def _short(name: str) -> str:
    return ascii(name if len(name) <= 60 else f"{name[:60]}...")
