"""An image's layers, or the squashfs of a SIF, as a folder; each layer is compared with its digest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import IO

from dshpc_setup.builtin.archive import ArchiveError, most_bytes, unpacked
from dshpc_setup.oci import packing
from dshpc_setup.oci.layers import LayerTree
from dshpc_setup.oci.model import Image, ImageError, Layer
from dshpc_setup.oci.sources import Source

_BLOCK = 1 << 20
_TARS = 2  # times what the files of a layer take: their headers and what lies between


def unpack(image: Image, source: Source, root: Path, removed: Path, machine: str) -> None:
    """Into the empty folder `root`, all as the caller's own; `removed` takes what layers have removed.
    Raises ImageError; what was written stays then."""
    most = most_bytes(sum(source.size(layer.member) for layer in image.layers))
    for layer in image.layers:
        with source.opened(layer.member) as packed, packing.plain(packed) as plain:
            counted = _Digested(plain, _TARS * most)
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


class _Digested:
    """A file of at most so many bytes that goes forward alone, and whose digest is known when all of it was
    read."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._most, self._hash, self._at = file, most, hashlib.sha256(), 0

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
            if self._at > self._most:  # zeros behind the last file, say
                raise ArchiveError("too-large", "a layer")
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
