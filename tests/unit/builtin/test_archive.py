"""Archives that nobody vouches for: nothing is written beyond the folder, and half an archive is told."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import stat
import tarfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.builtin.archive import ArchiveError, most_bytes, parts_of, unpack
from dshpc_setup.machine.elf import architecture_of

ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x3e\x00" + b"rest"


class Member(NamedTuple):
    name: str
    kind: bytes = tarfile.REGTYPE
    link: str = ""
    content: bytes = b""
    mode: int = 0o644


def archive(*members: Member) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.type, info.linkname, info.mode = member.kind, member.link, member.mode
            info.size = len(member.content)
            info.uid, info.gid = os.geteuid(), os.getegid()
            tar.addfile(info, io.BytesIO(member.content))
    return made.getvalue()


def unpacked(place: Path, content: bytes) -> tuple[Path, ArchiveError | None]:
    place.mkdir(parents=True, exist_ok=True)
    (place / "a.tar").write_bytes(content)
    folder = place / "folder"
    folder.mkdir()
    try:
        unpack(place / "a.tar", folder, owners=False, machine="x86_64")
    except ArchiveError as error:
        return folder, error
    return folder, None


def test_files_folders_links_and_modes_are_as_the_archive_has_them(tmp_path: Path) -> None:
    content = archive(
        Member("./", tarfile.DIRTYPE, mode=0o755),
        Member("usr/bin/", tarfile.DIRTYPE, mode=0o555),
        Member("usr/bin/env", content=ELF, mode=0o755),
        Member("usr/bin/same", tarfile.LNKTYPE, "usr/bin/env"),
        Member("bin", tarfile.SYMTYPE, "/usr/bin"),
        Member("dev/null", tarfile.CHRTYPE),
        Member("run/pipe", tarfile.FIFOTYPE),
    )
    (tmp_path / "a.tar").write_bytes(content)
    folder = tmp_path / "folder"
    folder.mkdir()
    found = unpack(tmp_path / "a.tar", folder, owners=False, machine="x86_64")
    assert (found.files, found.skipped, found.architecture) == (3, 2, "x86_64")
    assert os.readlink(folder / "bin") == "/usr/bin"
    assert (folder / "usr/bin/same").samefile(folder / "usr/bin/env")
    assert stat.S_IMODE((folder / "usr/bin/env").stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "usr/bin").stat().st_mode) == 0o755, "its owner can remove it"


def test_bits_that_lend_rights_are_dropped_where_all_is_the_callers(tmp_path: Path) -> None:
    folder, _ = unpacked(tmp_path, archive(Member("su", mode=0o4755, content=b"x")))
    assert stat.S_IMODE((folder / "su").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    "members",
    [
        (Member("../evil", content=b"x"),),
        (Member("a/../../evil", content=b"x"),),
        (Member("out", tarfile.SYMTYPE, ".."), Member("out/evil", content=b"x")),
        (Member("hard", tarfile.LNKTYPE, "../secret"),),
        (Member("out", tarfile.SYMTYPE, ".."), Member("hard", tarfile.LNKTYPE, "out/secret")),
        (Member("hard", tarfile.LNKTYPE, "missing"),),
        (Member("a/", tarfile.DIRTYPE), Member("a", content=b"x")),
    ],
)
def test_a_member_that_leads_out_ends_it(tmp_path: Path, members: tuple[Member, ...]) -> None:
    (tmp_path / "secret").write_text("secret")
    folder, error = unpacked(tmp_path, archive(*members))
    assert error is not None
    assert error.fault == "unsafe"
    assert not (tmp_path / "evil").exists()
    assert not (folder / "hard").exists()


def test_a_slash_at_the_front_means_the_folder(tmp_path: Path) -> None:
    folder, error = unpacked(tmp_path, archive(Member("/etc/hosts", content=b"x")))
    assert error is None
    assert (folder / "etc/hosts").read_text() == "x"


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c"]), min_size=1, max_size=4).map(
    "/".join
)
MEMBERS = st.builds(
    Member,
    st.one_of(NAMES, NAMES.map("/{}".format)),
    st.sampled_from(
        [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
    ),
    st.one_of(NAMES, st.sampled_from(["..", "/", "../..", "../outside", "a/../.."])),
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(members=st.lists(MEMBERS, max_size=8))
def test_whatever_an_archive_holds_nothing_is_written_outside(
    tmp_path_factory: pytest.TempPathFactory, members: list[Member]
) -> None:
    place = tmp_path_factory.mktemp("hostile")
    outside = place / "outside"
    outside.mkdir()
    (outside / "file").write_text("as it was")
    unpacked(place / "in", archive(*members))
    assert sorted(path.name for path in place.iterdir()) == ["in", "outside"]
    assert sorted(path.name for path in (place / "in").iterdir()) == ["a.tar", "folder"]
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("file", "as it was")]
    assert (outside / "file").stat().st_nlink == 1


WHOLE = archive(Member("etc/", tarfile.DIRTYPE), Member("etc/a", content=b"a" * 700), Member("b"))
ENDS_AT = 512 * 5 + 512  # headers and content of three members, and the first block of zeros


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    length=st.integers(0, ENDS_AT - 1),
    whole=st.sampled_from([b"", gzip.compress(WHOLE, 1), lzma.compress(WHOLE, preset=0)]),
)
def test_an_archive_that_ends_early_is_told(
    tmp_path_factory: pytest.TempPathFactory, length: int, whole: bytes
) -> None:
    content = whole[: max(2, length * len(whole) // ENDS_AT)] if whole else WHOLE[:length]
    _, error = unpacked(tmp_path_factory.mktemp("short"), content)
    assert error is not None
    assert error.fault in ("truncated", "no-archive")


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    _, error = unpacked(tmp_path, b"\x7fELF" + b"no archive" * 1000)
    assert error is not None
    assert error.fault == "no-archive"


def test_the_programs_of_another_processor_are_told(tmp_path: Path) -> None:
    other = ELF[:18] + b"\xb7\x00" + ELF[20:]
    _, error = unpacked(tmp_path, archive(Member("usr/bin/env", content=other)))
    assert error is not None
    assert (error.fault, error.what) == ("architecture", "aarch64")


@given(st.binary(max_size=64))
def test_any_bytes_have_an_architecture_or_none(head: bytes) -> None:
    found = architecture_of(head)
    assert found is None or head.startswith(b"\x7fELF")


@given(st.text())
def test_parts_of_a_name_never_lead_up(name: str) -> None:
    try:
        parts = parts_of(name)
    except ArchiveError:
        return
    assert not {"", ".", ".."} & set(parts)
    assert not any("/" in part or "\0" in part for part in parts)


def sparse(size: int) -> bytes:
    """An archive of 1 KiB with a file of that size, all of which is a hole (GNU's old form)."""
    info = tarfile.TarInfo("hole")
    info.type = tarfile.GNUTYPE_SPARSE
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[386:410] = b"%011o \0%010o " % (size, 0)
    head[483:495] = b"%011o " % size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + bytes(1024)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(sparse(1 << 32), id="sparse"),
        pytest.param(gzip.compress(archive(Member("zeros", content=bytes(1 << 22)))), id="zeros"),
        pytest.param(
            gzip.compress(archive(*(Member(f"{number}") for number in range(300)))),
            id="empty files",
        ),
        pytest.param(
            lzma.compress(archive(Member("zeros", content=bytes(1 << 22)))), id="zeros by xz"
        ),
    ],
)
def test_what_becomes_too_large_is_left_before_it_is_written(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ArchiveError) as raised:
        unpack(tmp_path / "a.tar", folder, owners=False, machine="x86_64", most=1 << 20)
    assert raised.value.fault == "too-large"
    assert sum(file.stat().st_blocks * 512 for file in folder.iterdir()) <= 1 << 20


def test_by_itself_an_archive_has_fifty_times_its_size(tmp_path: Path) -> None:
    assert (most_bytes(1000), most_bytes(60_000_000)) == (1 << 30, 3_000_000_000)
    folder, error = unpacked(tmp_path, sparse(2 << 30))
    assert error is not None
    assert (error.fault, list(folder.iterdir())) == ("too-large", [])


def test_what_does_not_fit_is_left_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = os.statvfs(tmp_path)
    small = os.statvfs_result(
        (4096, 4096, 1 << 18, 1 << 12, 1 << 12, *seen[5:10])
    )  # 16 of 1024 MiB
    monkeypatch.setattr(os, "fstatvfs", lambda _: small)
    folder, error = unpacked(tmp_path, archive(Member("file", content=b"x")))
    assert error is not None
    assert (error.fault, list(folder.iterdir())) == ("no-room", [])


def test_a_name_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    head = tarfile.TarInfo("././@LongLink")
    head.type, head.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    _, error = unpacked(tmp_path, head.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    assert error is not None
    assert (error.fault, error.what) == ("unsafe", f"a header of {1 << 33} bytes")
