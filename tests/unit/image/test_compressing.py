"""What an image's file is packed with: its name says it, and the reader of images reads each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dshpc_setup.builtin.archive import unpack
from dshpc_setup.image import compressing
from tests.unit.builtin.test_archive import ELF, Member, archive


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("a.tar.xz", ".tar.xz"),
        ("b.c.tar.gz", ".tar.gz"),
        ("a.tar", ".tar"),
        ("a.tar.zst", None),
        ("tar.xz", None),
        ("image", None),
    ],
)
def test_the_name_says_how(name: str, suffix: str | None) -> None:
    assert compressing.suffix_of(name) == suffix


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("suffix", compressing.SUFFIXES)
def test_each_is_read_back(
    tmp_path: Path,
    suffix: compressing.Suffix,
    arch: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compressing, "_PART", 1 << 16)  # several streams
    content = ELF + random.Random(18).randbytes(1 << 18)
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(archive(Member("usr/bin/env", content=content, mode=0o755), Member("etc/a")))
    compressing.compress(plain, packed, suffix, arch)
    (folder := tmp_path / "folder").mkdir()
    unpack(packed, folder, owners=False, machine="x86_64")
    assert (folder / "usr/bin/env").read_bytes() == content
    assert (folder / "etc/a").read_bytes() == b""
