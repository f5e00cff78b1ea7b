"""Copies of inputs, made by root for somebody else: no link of theirs leads us out of the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import no_links, workspace_folders
from dshpc_setup.jobs.incoming import Incoming


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What was given to whom; nothing really is."""
    found: list[tuple[str, int, int]] = []

    fstat, owned = os.fstat, set()

    def fchown(at: int, uid: int, gid: int) -> None:
        found.append((os.readlink(f"/proc/self/fd/{at}"), uid, gid))
        owned.add(fstat(at).st_ino)

    def fstat_of(at: int) -> os.stat_result:
        seen = fstat(at)
        return os.stat_result([*seen[:4], 1000, *seen[5:]]) if seen.st_ino in owned else seen

    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", fchown)
    monkeypatch.setattr(os, "fstat", fstat_of)
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
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o700  # executable as it was, and private
    user = work / "jobs/1000"
    made_aside, *rest = given
    assert (os.path.dirname(made_aside[0]), made_aside[1:]) == (f"{work}/jobs", (1000, 1001))
    assert rest == [(path, 1000, 1001) for path in (os.path.dirname(copy), copy)]
    assert [path.stat().st_mode & 0o077 for path in (user, *user.rglob("*"))] == [0, 0, 0]


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
def test_a_jobs_folder_that_is_a_link(owner: tuple[int, int] | None, tmp_path: Path) -> None:
    work, source = setting(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (work / "jobs").symlink_to(elsewhere)
    with pytest.raises(DshpcError, match="cannot be written to"):
        Incoming(str(work), owner).take(str(source))
    assert list(elsewhere.iterdir()) == []


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


def test_who_may_not_make_the_users_folder_asks_for_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, source = setting(tmp_path)
    (tmp_path / "b").write_text("b")
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid or 4711)
    monkeypatch.setattr(no_links, "given_owner", lambda _: 0)  # so that what root makes is 4711's
    jobs_of = workspace_folders._jobs_of
    asked: list[Path] = []

    def refused(at: int, work: str, owner: int) -> int:
        if not asked:
            raise PermissionError(13, "no")
        return jobs_of(at, work, owner)

    monkeypatch.setattr(workspace_folders, "_jobs_of", refused)
    incoming = Incoming(str(work), prepare=lambda: asked.append(work))
    assert Path(incoming.take(str(source))).read_text() == "data"
    incoming.take(str(tmp_path / "b"))
    Incoming(str(work), prepare=lambda: asked.append(work)).take(str(source))
    assert len(asked) == 1
    incoming.remove()
    (left,) = (work / "jobs" / str(os.getuid())).iterdir()
    assert str(left) != incoming.folder
