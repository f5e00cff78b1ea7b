"""The archive: the same bytes for the same files, and nobody is harmed by reading a hostile one."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.bundle import archive, contents, writing
from dshpc_setup.bundle.archive import ArchiveError, pack, unpack
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.terminal.reporter import Silent

NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,12}(/[A-Za-z0-9_.-]{1,12}[a-z])?", fullmatch=True)
FILES = st.dictionaries(
    NAMES.filter(lambda name: ".." not in name.split("/")),
    st.text(max_size=200),
    min_size=1,
    max_size=6,
)


@given(FILES)
def test_what_is_packed_comes_back(files: dict[str, str]) -> None:
    files = {
        name: text
        for name, text in files.items()
        if not any(f"{name}/" in other for other in files)
    }
    assert unpack(pack("top", files)) == files
    assert list(unpack(pack("top", files))) == list(files)


def test_the_same_files_are_the_same_bytes_and_belong_to_nobody() -> None:
    files = {"CONTENTS.txt": "x", "a/b": "y"}
    assert pack("top", files) == pack("top", files)
    with tarfile.open(fileobj=io.BytesIO(pack("top", files))) as tar:
        for member in tar:
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            assert member.mtime == 315532800
            assert member.isreg()


# Reading


def tar_of(*members: tarfile.TarInfo, form: int = tarfile.PAX_FORMAT) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=form) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.size else None)
    return gzip.compress(plain.getvalue())


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (member("/etc/passwd"), "leads elsewhere"),
        (member("top/../../x"), "leads elsewhere"),
        (member("../x"), "leads elsewhere"),
        (member("top/.."), "leads elsewhere"),
        (member("top/a\\..\\b"), "leads elsewhere"),
        (member("top/new\nline"), "leads elsewhere"),
        (member("top/" + "a/" * 200 + "b"), "leads elsewhere"),
        (member("top/link", tarfile.SYMTYPE, "/etc/passwd"), "no plain file"),
        (member("top/hard", tarfile.LNKTYPE, "top/x"), "no plain file"),
        (member("top/null", tarfile.CHRTYPE), "no plain file"),
        (member("top/disk", tarfile.BLKTYPE), "no plain file"),
        (member("top/pipe", tarfile.FIFOTYPE), "no plain file"),
        (member("file"), "in no folder"),
    ],
)
def test_a_member_that_is_no_plain_file_of_the_folder_is_refused(
    one: tarfile.TarInfo, word: str
) -> None:
    with pytest.raises(ArchiveError, match=word):
        unpack(tar_of(one))


def test_two_folders_and_two_files_of_a_name_are_refused() -> None:
    with pytest.raises(ArchiveError, match="more than one folder"):
        unpack(tar_of(member("a/x"), member("b/x")))
    with pytest.raises(ArchiveError, match="twice"):
        unpack(tar_of(member("a/x"), member("a/x")))


def test_folders_in_it_are_no_harm() -> None:
    files = [member("./", tarfile.DIRTYPE), member("./a", tarfile.DIRTYPE), member("./a/x", size=3)]
    assert unpack(tar_of(*files)) == {"x": "xxx"}


def test_too_much_is_refused_before_it_is_held() -> None:
    bomb = gzip.compress(b"\0" * (archive.MOST_BYTES + 1))
    assert len(bomb) < 1 << 20
    with pytest.raises(ArchiveError, match="more than 64 MiB"):
        unpack(bomb)
    many = tar_of(*(member(f"a/{number}") for number in range(archive.MOST_MEMBERS + 1)),
                  form=tarfile.USTAR_FORMAT)  # fmt: skip
    with pytest.raises(ArchiveError, match="more than 5000 files"):
        unpack(many)


def test_a_file_that_says_that_it_is_larger_than_it_is_is_refused() -> None:
    claim = member("a/x")
    claim.size = 1 << 40
    with pytest.raises(ArchiveError, match="more than 64 MiB"):
        unpack(gzip.compress(claim.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024))
    sparse = member("a/x")
    sparse.pax_headers = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,0",
                          "GNU.sparse.numblocks": "1"}  # fmt: skip
    with pytest.raises(ArchiveError):
        unpack(tar_of(sparse))


NO_TEXT = gzip.compress(
    gzip.decompress(tar_of(member("a/x", size=3))).replace(b"xxx", b"\xff\xfe\xfd")
)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "end is missing"),
        (b"plain text", "not compressed"),
        (gzip.compress(b"plain text"), "no tar archive"),
        (pack("a", {"x": "y"})[:-20], "end is missing|no tar|gzip"),
        (pack("a", {"x": "y"}) + b"more", "follows its end"),
        (NO_TEXT, "not UTF-8"),
    ],
    ids=["empty", "plain", "no archive", "cut", "more", "no text"],
)  # fmt: skip
def test_what_is_damaged_is_told(data: bytes, word: str) -> None:
    with pytest.raises(ArchiveError, match=word):
        unpack(data)


KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE,
     tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE]
)  # fmt: skip
HOSTILE = st.lists(
    st.builds(
        member,
        st.one_of(
            st.sampled_from(
                ["../x", "/x", "a/../x", "a/x", "a/./x", "a//x", "a", ".", "..", "C:\\x"]
            ),
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20),
        ),
        KINDS,
        st.sampled_from(["", "/etc/passwd", "../../x"]),
        st.integers(0, 30),
    ),
    max_size=5,
)


@given(HOSTILE, st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_a_hostile_archive_is_read_whole_or_refused(
    members: list[tarfile.TarInfo], form: int
) -> None:
    for one in members:
        if one.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE):
            one.size = 0
    check(tar_of(*members, form=form))


@given(FILES, st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=12))
def test_a_damaged_archive_is_read_whole_or_refused(
    files: dict[str, str], flips: list[tuple[int, int]]
) -> None:
    plain = bytearray(gzip.decompress(pack("top", files)))
    for place, value in flips:
        plain[place % len(plain)] = value
    check(gzip.compress(bytes(plain)))


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_whole_or_refused(data: bytes) -> None:
    check(data)
    check(gzip.compress(data))


def check(data: bytes) -> None:
    before = set(os.listdir())
    try:
        found = unpack(data)
    except ArchiveError as error:
        assert str(error)
        return
    finally:
        assert set(os.listdir()) == before
    for name in found:
        parts = name.split("/")
        assert not name.startswith("/")
        assert not {"", ".", ".."} & set(parts)
    assert sum(len(text.encode()) for text in found.values()) <= archive.MOST_BYTES


# Writing


FILES_OF: Mapping[str, str] = {"CONTENTS.txt": "é\r\n", "facts.json": "{}\n"}


def test_a_report_is_for_its_owner_and_no_half_of_it_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.tar.gz"
    writing.need_place(path, Silent())
    size = writing.write(path, FILES_OF)
    assert path.stat().st_size == size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert unpack(path.read_bytes()) == FILES_OF
    with tarfile.open(path) as tar:
        assert all(name.startswith("dshpc-report-2") for name in tar.getnames())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DshpcError, match="the disk is full"):
        writing.write(path, {"other": "x"})
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["report.tar.gz"]


def test_what_exists_is_replaced_only_with_a_yes(tmp_path: Path) -> None:
    path = tmp_path / "report.tgz"
    path.write_text("mine")
    with pytest.raises(DshpcError, match="exists") as caught:
        writing.need_place(path, Silent(answer=False))
    assert caught.value.exit_code == Exit.USAGE
    writing.need_place(path, Silent(answer=True))
    assert path.read_text() == "mine"
    (tmp_path / "dangling.tar.gz").symlink_to("nowhere")
    with pytest.raises(DshpcError, match="exists"):
        writing.need_place(tmp_path / "dangling.tar.gz", Silent())


@pytest.mark.parametrize(
    ("name", "word"),
    [("report.zip", "compressed archive"), ("none/report.tar.gz", "no folder"),
     ("folder.tar.gz", "is a folder")],
)  # fmt: skip
def test_a_place_that_will_not_do_is_told_at_once(name: str, word: str, tmp_path: Path) -> None:
    (tmp_path / "folder.tar.gz").mkdir()
    with pytest.raises(DshpcError, match=word) as caught:
        writing.need_place(tmp_path / name, Silent(answer=True))
    assert caught.value.exit_code == Exit.USAGE


# Contents


@given(st.text(st.sampled_from("aé\n"), min_size=0, max_size=60), st.booleans())
def test_a_large_file_is_cut_with_a_mark(piece: str, end: bool) -> None:
    text = (piece or "x") * (contents.MOST_BYTES // 20)
    cut = contents.cut(text, end=end)
    if len(text.encode()) <= contents.MOST_BYTES:
        assert cut == text
        return
    assert len(cut.encode()) < contents.MOST_BYTES + 200
    mark = cut.split("\n", 1)[0] if end else cut.rstrip("\n").rsplit("\n", 1)[1]
    assert f"of {len(text.encode())} bytes were left out" in mark
    kept = cut.split("\n", 1)[1] if end else cut[: cut.rindex(f"\n{mark}")]
    assert text.endswith(kept) if end else text.startswith(kept)


def test_every_file_of_a_report_has_its_sentence() -> None:
    listed = contents.listed({"facts.json": "é", "rendered/config/slurm.conf": "x" * 2000})
    assert list(listed) == ["CONTENTS.txt", "facts.json", "rendered/config/slurm.conf"]
    assert "Look through it before you send it." in listed["CONTENTS.txt"]
    assert "  2 B  " in listed["CONTENTS.txt"]
    assert "2.0 KiB  config/slurm.conf of the project folder." in listed["CONTENTS.txt"]
    with pytest.raises(KeyError):
        contents.sentence("unheard-of.json")
