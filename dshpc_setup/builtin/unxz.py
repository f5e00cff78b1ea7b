"""What xz has packed, read once from its beginning, within a limit of memory.

Python's own `lzma.LZMAFile` takes whatever memory an archive asks for, which may be gigabytes.
"""

from __future__ import annotations

import lzma
from typing import IO

MAGIC = b"\xfd7zXZ\x00"
_MEMORY_BYTES = 256 << 20  # the highest preset of xz takes 65 MiB
_BLOCK = 1 << 20


class Unxz:
    """A file of one xz stream or several behind each other, as a binary file that goes forward alone.

    `read` and `seek` raise EOFError where the file ends early, and lzma.LZMAError where it is damaged or
    asks for more memory than is given.
    """

    def __init__(self, packed: IO[bytes]) -> None:
        self._packed = packed
        self._stream = _stream()
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        """So many bytes, fewer at the end alone; less than 0: all."""
        parts: list[bytes] = []
        left = size
        while left and (part := self._some(left)):
            parts.append(part)
            left -= len(part) if left > 0 else 0
        return b"".join(parts)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Forward, counted from the beginning."""
        if whence != 0 or offset < self._at:
            raise ValueError(f"cannot go back to {offset} from {self._at}")
        while self._at < offset and self._some(min(_BLOCK, offset - self._at)):
            pass
        return self._at

    def tell(self) -> int:
        return self._at

    def _some(self, most: int) -> bytes:
        """Up to `most` bytes, less than 0: as they come; none at the end of the last stream."""
        while True:
            if self._stream.eof and not self._next_stream():
                return b""
            given = b""
            if self._stream.needs_input:
                given = self._packed.read(_BLOCK)
                if not given:
                    raise EOFError("the xz stream ends early")
            part = self._stream.decompress(given, min(_BLOCK, most) if most > 0 else _BLOCK)
            if part:
                self._at += len(part)
                return part

    def _next_stream(self) -> bool:
        """Begin the stream behind the one that has ended; whether there is one. Zeros between are padding."""
        rest = self._stream.unused_data
        while not (rest := rest.lstrip(b"\0")):
            if not (rest := self._packed.read(_BLOCK)):
                return False
        self._packed.seek(-len(rest), 1)
        self._stream = _stream()
        return True


def _stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES)
