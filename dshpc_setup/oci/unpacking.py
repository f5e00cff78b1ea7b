"""An image's layers, or the squashfs of a SIF, as a folder; each layer is compared with its digest."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dshpc_setup.builtin.archive import ArchiveError, most_bytes, unpacked
from dshpc_setup.oci.layers import LayerTree
from dshpc_setup.oci.model import Image, ImageError, Layer
from dshpc_setup.oci.sources import Source

_BLOCK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def unpack(image: Image, source: Source, root: Path, removed: Path, machine: str) -> None:
    """Into the empty folder `root`, all as the caller's own; `removed` takes what layers have removed.
    Raises ImageError; what was written stays then."""
    most = most_bytes(sum(source.size(layer.member) for layer in image.layers))
    for layer in image.layers:
        with source.opened(layer.member) as packed, _plain(packed) as plain:
            counted = _Digested(plain)
            tree = LayerTree(root, removed, machine, most)
            try:
                unpacked(counted, tree, layer.member)  # type: ignore[arg-type]
            except ArchiveError as error:
                fault = "no-image" if error.fault == "no-archive" else error.fault
                raise ImageError(fault, error.what) from None
            most -= tree.taken
            _compare(counted, layer)


def _compare(counted: _Digested, layer: Layer) -> None:
    if counted.digest != layer.diff_id:
        raise ImageError(
            "damaged", f"{layer.member} is {counted.digest[:12]} and not {layer.diff_id[:12]}"
        )


@contextlib.contextmanager
def _plain(packed: IO[bytes]) -> Iterator[IO[bytes]]:
    """Unpacked where it is packed by gzip; told by its first bytes, as names and types are often wrong."""
    ahead = _Ahead(packed)
    if ahead.first == _ZSTD:
        raise ImageError("packing", "zstd")
    if ahead.first[:2] != _GZIP:
        yield ahead  # type: ignore[misc]
        return
    with gzip.GzipFile(fileobj=ahead, mode="rb") as file:  # type: ignore[call-overload]
        yield file


class _Ahead:
    """A file whose first bytes are known before they are read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.first = file.read(4)
        self._left = self.first

    def read(self, size: int = -1) -> bytes:
        if not self._left:
            return self._file.read(size)
        if size < 0:
            block, self._left = self._left, b""
            return block + self._file.read()
        block, self._left = self._left[:size], self._left[size:]
        return block


class _Digested:
    """A file that goes forward alone, and whose digest is known when all of it was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash, self._at = file, hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        while size:
            part = self._file.read(_BLOCK if size < 0 else min(size, _BLOCK))
            if not part:
                break
            self._hash.update(part)
            self._at += len(part)
            size -= len(part) if size > 0 else 0
            parts.append(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Forward, counted from the beginning."""
        if whence != os.SEEK_SET or offset < self._at:
            raise ValueError(f"cannot go back to {offset} from {self._at}")
        while self._at < offset and self.read(min(_BLOCK, offset - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at
