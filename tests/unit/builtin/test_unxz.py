"""xz read forward: one stream or several, what is damaged, and what asks for too much memory."""

from __future__ import annotations

import io
import lzma
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.builtin.unxz import Unxz


def packed(*parts: bytes, padding: int = 0) -> bytes:
    return b"".join(lzma.compress(part, preset=0) + bytes(padding) for part in parts)


@given(
    parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4),
    padding=st.sampled_from([0, 4, 8]),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=5),
)
def test_streams_behind_each_other_are_one_file(
    parts: list[bytes], padding: int, sizes: list[int]
) -> None:
    whole, file = b"".join(parts), Unxz(io.BytesIO(packed(*parts, padding=padding)))
    for size in sizes:
        at = file.tell()
        assert file.read(size) == whole[at : at + size]
    assert file.read() == whole[sum(sizes) :]
    assert (file.read(7), file.tell()) == (b"", len(whole))


@given(content=st.binary(max_size=500), steps=st.lists(st.integers(0, 600), max_size=5))
def test_it_goes_forward_alone(content: bytes, steps: list[int]) -> None:
    file = Unxz(io.BytesIO(packed(content)))
    for step in sorted(steps):
        if step >= file.tell():
            assert file.seek(step) == min(step, len(content))
            assert file.read(3) == content[step : step + 3]
    if file.tell():
        with pytest.raises(ValueError, match="cannot go back"):
            file.seek(file.tell() - 1)


def test_what_is_damaged_or_no_xz_is_told() -> None:
    whole = packed(bytes(range(256)) * 8)
    with pytest.raises(EOFError):
        Unxz(io.BytesIO(whole[:-5])).read()
    with pytest.raises(lzma.LZMAError):
        Unxz(io.BytesIO(whole + b"more of something else")).read()
    with pytest.raises(lzma.LZMAError):
        Unxz(io.BytesIO(whole[:40] + b"\0\0\0\0" + whole[44:])).read()


def test_an_archive_that_wants_gigabytes_of_memory_gets_none() -> None:
    wide = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 << 20}]
    assert Unxz(io.BytesIO(lzma.compress(b"a", filters=wide))).read() == b"a"
    header = bytearray(lzma.compress(b"a", filters=wide))
    # The block's header (xz's file format, 3.1 and 5.3.1): flags, LZMA2's id, one byte of the dictionary
    at = header.index(b"\x21\x01", 12) + 2
    header[at] = 40  # 4 GiB
    size = (header[12] + 1) * 4
    header[12 + size - 4 : 12 + size] = zlib.crc32(header[12 : 12 + size - 4]).to_bytes(4, "little")
    with pytest.raises(lzma.LZMAError, match="limit"):
        Unxz(io.BytesIO(bytes(header))).read()
