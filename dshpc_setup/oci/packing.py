"""What is packed by gzip or zstd, unpacked as it is read; told by its first bytes, as names and types are
often wrong."""

from __future__ import annotations

import contextlib
import gzip
import sys
from collections.abc import Iterator
from typing import IO

if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPED = (
    b"\x2a\x4d\x18"  # a frame of zstd's without content, which may come first (RFC 8878, 3.1.2)
)


@contextlib.contextmanager
def plain(packed: IO[bytes]) -> Iterator[IO[bytes]]:
    """Forward alone. Reading raises EOFError, OSError or zlib.error for what is damaged."""
    ahead = _Ahead(packed)
    if ahead.first[:2] == _GZIP:
        with gzip.GzipFile(fileobj=ahead, mode="rb") as file:  # type: ignore[call-overload]
            yield file
    elif ahead.first == _ZSTD or (ahead.first[1:] == _SKIPPED and ahead.first[0] >> 4 == 5):
        with _Zstd(ahead) as unpacked:  # type: ignore[call-overload]
            yield unpacked
    else:
        yield ahead  # type: ignore[misc]


def is_packed(file: IO[bytes]) -> bool:
    """Of a file that `plain` gave."""
    return not isinstance(file, _Ahead)


class _Zstd(zstd.ZstdFile):
    """With windows of up to 128 MiB, which is zstd's own limit: memory is what a window takes."""

    def read(self, size: int | None = -1) -> bytes:
        try:
            return super().read(size)
        except zstd.ZstdError as error:
            raise EOFError(str(error)) from None


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
