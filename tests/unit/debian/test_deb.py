"""Packages as files."""

from __future__ import annotations

import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.debian import deb, unpack
from dshpc_setup.debian.faults import DebianError
from tests.unit.engine.fake import FakeMachine


def ar(*parts: tuple[str, bytes]) -> bytes:
    made = b"!<arch>\n"
    for name, content in parts:
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        made += head.encode() + content + b"\n" * (len(content) % 2)
    return made


def tar(name: str = "./usr/x", content: bytes = b"y" * 3000) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as file:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    return made.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
}


@pytest.mark.parametrize("suffix", PACKED)
def test_each_way_of_packing_is_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "a.deb"
    content = PACKED[suffix](tar())
    path.write_bytes(
        ar(("debian-binary", b"2.0\n"), ("control.tar.xz", b"odd"), (f"data.tar{suffix}", content))
    )
    with (
        deb.opened(FakeMachine(), path, "data.tar") as opened,
        tarfile.open(fileobj=opened) as found,
    ):
        assert found.getnames() == ["./usr/x"]


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "deb"),
        (b"!<arch>\n", "deb"),
        (ar(("data.tar.zst", b"x")), "no-zstd"),
        (ar(("data.tar.lzo", b"x")), "deb"),
        (ar(("data.tar", tar()))[:-100], "deb"),
        (ar(("data.tar", b"")).replace(b"`\n", b"!!"), "deb"),
    ],
)
def test_what_is_no_package_is_refused(raw: bytes, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "a.deb"
    path.write_bytes(raw)
    with pytest.raises(DebianError) as raised, deb.opened(FakeMachine(), path, "data.tar"):
        pass
    assert raised.value.fault == fault


@given(st.binary(max_size=200))
def test_whatever_it_is_it_is_read_or_refused(raw: bytes) -> None:
    for each in (raw, b"!<arch>\n" + raw):
        try:
            found = deb.members(io.BytesIO(each))
        except DebianError:
            continue
        assert all(member.offset + member.size <= len(each) for member in found)


@given(
    st.lists(
        st.tuples(st.from_regex("[a-z]{1,12}", fullmatch=True), st.binary(max_size=50)), max_size=5
    )
)
def test_members_are_found_where_they_lie(parts: list[tuple[str, bytes]]) -> None:
    raw = ar(*parts)
    found = deb.members(io.BytesIO(raw))
    assert [(each.name, raw[each.offset : each.offset + each.size]) for each in found] == parts


def test_files_are_shared_out_by_size(tmp_path: Path) -> None:
    for at, size in enumerate((100, 60, 50, 10)):
        (tmp_path / str(at)).write_bytes(b"x" * size)
    files = sorted(tmp_path.iterdir())
    parts = unpack.shared(files, 2)
    assert [[path.name for path in part] for part in parts] == [["0", "3"], ["1", "2"]]
    assert len(unpack.shared(files[:1], 4)) == 1
