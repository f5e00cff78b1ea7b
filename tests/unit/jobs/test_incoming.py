"""Copies of inputs, made by root for somebody else: no link of theirs leads us out of the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.incoming import Incoming


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What was given to whom; nothing really is."""
    found: list[tuple[str, int, int]] = []

    def fchown(at: int, uid: int, gid: int) -> None:
        found.append((os.readlink(f"/proc/self/fd/{at}"), uid, gid))

    monkeypatch.setattr(os, "fchown", fchown)
    return found


def setting(tmp_path: Path) -> tuple[Path, Path]:
    """The work folder, and an input beside it."""
    (tmp_path / "work").mkdir()
    source = tmp_path / "data.bin"
    source.write_text("data")
    source.chmod(0o2550)
    return tmp_path / "work", source


def test_all_that_is_made_belongs_to_the_user(
    tmp_path: Path, given: list[tuple[str, int, int]]
) -> None:
    work, source = setting(tmp_path)
    copy = Incoming(str(work), (1000, 1001)).take(str(source))
    assert Path(copy).read_text() == "data"
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o750
    assert given == [
        (path, 1000, 1001) for path in (str(work / "jobs"), os.path.dirname(copy), copy)
    ]


def test_a_link_in_the_copys_place_is_not_followed(
    tmp_path: Path, given: list[tuple[str, int, int]]
) -> None:
    work, source = setting(tmp_path)
    incoming = Incoming(str(work), (1000, 1000))
    incoming.take(str(source))
    (tmp_path / "b").write_text("theirs")
    victim = tmp_path / "victim"
    victim.write_text("ours")
    Path(str(incoming.folder), "b").symlink_to(victim)
    with pytest.raises(DshpcError, match="cannot be copied"):
        incoming.take(str(tmp_path / "b"))
    assert victim.read_text() == "ours"
    assert str(victim) not in [path for path, *_ in given]


@pytest.mark.parametrize("owner", [(1000, 1000), None])
def test_a_jobs_folder_that_is_a_link(
    owner: tuple[int, int] | None, tmp_path: Path, given: list[tuple[str, int, int]]
) -> None:
    work, source = setting(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (work / "jobs").symlink_to(elsewhere)
    incoming = Incoming(str(work), owner)
    if owner is None:  # the user's own link, with the user's own rights
        assert Path(incoming.take(str(source))).read_text() == "data"
    else:
        with pytest.raises(DshpcError, match="cannot be written to"):
            incoming.take(str(source))
        assert list(elsewhere.iterdir()) == []
    assert given == []


def test_a_folder_of_copies_that_became_a_link_gets_none(
    tmp_path: Path, given: list[tuple[str, int, int]]
) -> None:
    work, source = setting(tmp_path)
    incoming = Incoming(str(work), (1000, 1000))
    incoming.take(str(source))
    (tmp_path / "b").write_text("b")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder = Path(str(incoming.folder))
    folder.rename(tmp_path / "moved")
    folder.symlink_to(elsewhere)
    with pytest.raises(DshpcError, match="cannot be copied"):
        incoming.take(str(tmp_path / "b"))
    assert list(elsewhere.iterdir()) == []


def test_another_submission_may_make_the_folder_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work" / "jobs").mkdir(parents=True)
    (tmp_path / "a.csv").write_text("1\n")
    isdir = os.path.isdir
    late = [str(tmp_path / "work" / "jobs")]  # not there yet as it is looked for
    monkeypatch.setattr(
        "os.path.isdir", lambda path: late.pop() != path if path in late else isdir(path)
    )
    copy = Incoming(str(tmp_path / "work")).take(str(tmp_path / "a.csv"))
    assert Path(copy).read_text() == "1\n"
    assert not late
