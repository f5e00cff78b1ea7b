"""Files on a stream between two machines: as they were, and nowhere but in their folder."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup.files import tree
from dshpc_setup.jobs import parcels, safe_open
from dshpc_setup.jobs.parcels import FILE, GONE, LINK, BrokenError, Head, Sender, Writer


def folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def sent(source: Path) -> bytes:
    stream = io.BytesIO()
    send = Sender(stream.write)
    for entry in tree.entries(folder(source), 1000):
        send.entry(entry.path, entry)
    return stream.getvalue()


def received(data: bytes, target: Path) -> Writer:
    writer = Writer(folder(target))
    for head, content in parcels.heads(io.BytesIO(data).read):
        writer.put(head, content)
    writer.finish()
    return writer


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("from", "to"):
        (tmp_path / name).mkdir()
    return tmp_path / "from", tmp_path / "to"


def test_all_comes_as_it_was(places: tuple[Path, Path]) -> None:
    source, target = places
    (source / "a/b").mkdir(parents=True)
    (source / "a/b/x").write_bytes(os.urandom(600_000))
    (source / "a/run").write_text("#!/bin/sh\n")
    (source / "a/run").chmod(0o750)
    os.utime(source / "a/run", ns=(1, 1_700_000_000_123_456_789))
    (source / "link").symlink_to("a/run")
    (source / "empty").write_text("")
    os.mkfifo(source / "pipe")
    (source / "a/b").chmod(0o500)
    writer = received(sent(source), target)
    assert (target / "a/b/x").read_bytes() == (source / "a/b/x").read_bytes()
    assert (target / "a/run").stat().st_mode & 0o777 == 0o750
    assert (target / "a/b").stat().st_mode & 0o777 == 0o500
    assert os.readlink(target / "link") == "a/run"
    assert sorted(path.name for path in target.rglob("*")) == [
        "a",
        "b",
        "empty",
        "link",
        "run",
        "x",
    ]
    assert writer.seen("a/run") == (10, 1_700_000_000_123_456_789)
    (source / "a/b").chmod(0o700)
    (target / "a/b").chmod(0o700)


def nothing() -> Iterator[bytes]:
    return iter((b"x",))


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/x", "", ".", "a//b", "a/./b", "..", "a\0b"]
)
def test_nothing_leads_out(places: tuple[Path, Path], path: str) -> None:
    with pytest.raises(BrokenError):
        Writer(folder(places[1])).put(Head(FILE, path), nothing)


def test_no_link_is_followed(places: tuple[Path, Path]) -> None:
    source, target = places
    (target / "link").symlink_to(source)
    with pytest.raises(OSError, match="Not a directory"):
        Writer(folder(target)).put(Head(FILE, "link/x"), nothing)
    (target / "file").symlink_to(source / "victim")
    Writer(folder(target)).put(Head(FILE, "file", 0o600), nothing)
    assert not (target / "file").is_symlink()
    assert list(source.iterdir()) == []


def test_a_file_takes_the_place_of_what_was_there(places: tuple[Path, Path]) -> None:
    _, target = places
    writer = Writer(folder(target))
    (target / "x/y").mkdir(parents=True)
    writer.put(Head(FILE, "x", 0o644), nothing)
    assert (target / "x").read_text() == "x"
    writer.put(Head(LINK, "x"), nothing)
    assert os.readlink(target / "x") == "x"
    writer.put(Head(parcels.FOLDER, "x", 0o755), nothing)
    assert (target / "x").is_dir()


def test_what_is_gone_goes_and_a_folder_with_something_in_it_stays(
    places: tuple[Path, Path],
) -> None:
    _, target = places
    (target / "a").mkdir()
    (target / "a/x").write_text("")
    (target / "a/other").write_text("")
    writer = Writer(folder(target))
    for path in ("a/x", "a", "never"):
        writer.put(Head(GONE, path), nothing)
    assert [path.name for path in target.rglob("*")] == ["a", "other"]


def test_what_is_gone_is_gone_also_where_its_folder_is_none(places: tuple[Path, Path]) -> None:
    source, target = places
    (source / "x").write_text("mine")
    (target / "link").symlink_to(source)
    (target / "file").write_text("")
    for path in ("never/x", "link/x", "file/x"):
        Writer(folder(target)).put(Head(GONE, path), nothing)
    assert (source / "x").read_text() == "mine"


def test_a_stream_that_is_cut_off_leaves_no_half_of_a_file(places: tuple[Path, Path]) -> None:
    source, target = places
    (source / "x").write_bytes(b"y" * 100_000)
    (target / "x").write_text("before")
    data = sent(source)
    for cut in (1, 20, 50, 50_000, len(data) - 1):
        with pytest.raises(BrokenError):
            received(data[:cut], target)
        assert [(path.name, path.read_text()) for path in target.iterdir()] == [("x", "before")]


def test_words_and_the_log_come_between_files() -> None:
    stream = io.BytesIO()
    send = Sender(stream.write)
    send.mark("filled", b"12")
    send.log(7, b"line\n")
    send.gone("a/b")
    found = [
        (head.kind, head.path, head.time, b"".join(content()))
        for head, content in parcels.heads(io.BytesIO(stream.getvalue()).read)
    ]
    assert found == [(b"m", "filled", 0, b"12"), (b"a", "", 7, b"line\n"), (b"x", "a/b", 0, b"")]


PART = ".dshpc-carried-0123456789ab"


def test_what_a_killed_writer_has_left_is_removed_and_what_one_writes_is_not(
    places: tuple[Path, Path],
) -> None:
    _, target = places
    (target / "a").mkdir()
    (target / "a" / PART).write_text("half")
    (target / f"{PART}0").write_text("somebody's own")
    during: list[list[str]] = []

    def content() -> Iterator[bytes]:
        yield b"x"
        parcels.drop_all_left(folder(target), 100)
        during.append([path.name for path in target.iterdir() if parcels.is_part(path.name)])

    Writer(folder(target)).put(Head(FILE, "new"), content)
    assert [len(each) for each in during] == [1]
    assert (target / "new").read_text() == "x"
    assert sorted(path.name for path in target.rglob("*")) == [f"{PART}0", "a", "new"]


def test_a_link_that_is_left_goes_by_its_age(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (places[1] / PART).symlink_to("x")
    parcels.drop_all_left(folder(places[1]), 100)
    assert (places[1] / PART).is_symlink()
    monkeypatch.setattr(parcels, "_OLD_S", -1.0)
    parcels.drop_all_left(folder(places[1]), 100)
    assert not (places[1] / PART).is_symlink()


def test_a_part_that_is_cleaned_before_it_is_held_is_made_again(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, target = places
    made: list[str] = []
    new_file = safe_open.new_file

    def and_cleaned(name: str, at: int, mode: int = 0o600) -> int:
        handle = new_file(name, at, mode)
        made.append(name)
        if len(made) == 1:
            parcels.drop_all_left(at, 100)
        return handle

    monkeypatch.setattr(safe_open, "new_file", and_cleaned)
    Writer(folder(target)).put(Head(FILE, "new"), nothing)
    assert len(made) == 2
    assert [path.name for path in target.iterdir()] == ["new"]
