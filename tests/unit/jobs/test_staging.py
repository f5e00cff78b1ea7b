"""Copies of inputs, made by root for somebody else: no link of theirs leads us out of the folder."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.files import tree
from dshpc_setup.jobs import rights, safe_open, staging, submit, workspace_folders
from dshpc_setup.jobs.staging import Incoming


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
    monkeypatch.setattr(rights, "of_user", lambda _: contextlib.nullcontext())
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
    monkeypatch.setattr(safe_open, "given_owner", lambda _: 0)  # so that what root makes is 4711's
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


def method(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The work folder, a method beside it, and a file of others that nobody asked for."""
    work, _ = setting(tmp_path)
    folder = tmp_path / "method"
    (folder / "lib").mkdir(parents=True)
    (folder / "run.py").write_text("print()")
    (folder / "lib/part.py").write_text("X = 1")
    victim = tmp_path / "victim"
    victim.write_text("secret")
    return work, folder, victim


def all_below(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x", "{victim}"),
        ("x", "../victim"),
        ("lib/x", "../../victim"),
        ("x", "lib/../../victim"),
        ("x", "../method/../victim"),
        ("x", "/etc/passwd"),
        ("x", ".."),
    ],
)
def test_a_link_that_leads_out_of_a_method_is_not_copied(
    name: str, text: str, tmp_path: Path
) -> None:
    work, folder, victim = method(tmp_path)
    (folder / name).symlink_to(text.format(victim=victim))
    incoming = Incoming(str(work))
    with pytest.raises(DshpcError, match="leads out of the method's folder"):
        incoming.take_method(str(folder))
    assert all_below(work) == set()
    assert incoming.folder is None


def test_links_within_a_method_and_to_what_jobs_see_stay_links(tmp_path: Path) -> None:
    work, folder, _ = method(tmp_path)
    (work / "data").write_text("data")
    (folder / "lib/run").symlink_to("../run.py")
    (folder / "parts").symlink_to("lib")
    (folder / "data").symlink_to(work / "data")
    incoming = Incoming(str(work))
    copied = Path(incoming.take_method(str(folder)))
    links = {name: os.readlink(copied / name) for name in ("lib/run", "parts", "data")}
    assert links == {"lib/run": "../run.py", "parts": "lib", "data": str(work / "data")}
    user = copied.parent.parent
    with safe_open.opened(str(user)) as at, safe_open.opened(str(tmp_path)) as made:
        submit._copy(copied.parent.name, at, made)  # for a second job of the same submission
    assert os.readlink(tmp_path / "inputs/.method/lib/run") == "../run.py"


@pytest.mark.parametrize("name", ["run.py", "lib/part.py", "lib"])
def test_a_method_that_is_changed_while_it_is_copied_leads_nowhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[tuple[str, int, int]]
) -> None:
    """Just before a file or a folder is opened, after it was looked at, a link stands in its place."""
    work, folder, victim = method(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/part.py").write_text("secret")
    target = victim if name.endswith(".py") else tmp_path / "elsewhere"

    def swapping(before: Callable[..., int]) -> Callable[..., int]:
        def opened(called: str, *more: int | None) -> int:
            if called == os.path.basename(name) and not (folder / name).is_symlink():
                (folder / name).rename(tmp_path / "moved")
                (folder / name).symlink_to(target)
            return before(called, *more)

        return opened

    for call in ("open_file", "open_folder"):
        monkeypatch.setattr(tree, call, swapping(getattr(tree, call)))
    with pytest.raises(DshpcError, match="cannot be copied for its job"):
        Incoming(str(work), (1000, 1000)).take_method(str(folder))
    assert (folder / name).is_symlink()
    assert "secret" not in all_below(work)


def test_what_is_no_file_in_a_method_is_not_waited_for(tmp_path: Path) -> None:
    work, folder, _ = method(tmp_path)
    os.mkfifo(folder / "pipe")
    with pytest.raises(DshpcError, match="pipe is not a file"):
        Incoming(str(work)).take_method(str(folder))


def test_folders_in_folders_have_an_end(tmp_path: Path) -> None:
    work, folder, _ = method(tmp_path)
    folder.joinpath(*["d"] * (tree.MOST_DEPTH + 1)).mkdir(parents=True)
    with pytest.raises(DshpcError, match="too large to be copied"):
        Incoming(str(work)).take_method(str(folder))


def test_an_input_that_grows_for_ever_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, source = setting(tmp_path)
    source.chmod(0o600)
    new_file = safe_open.new_file

    def grown(name: str, at: int, mode: int = 0o600) -> int:
        source.write_text("data and more")
        return new_file(name, at, mode)

    monkeypatch.setattr(safe_open, "new_file", grown)
    assert Path(Incoming(str(work)).take(str(source))).read_text() == "data"


def test_an_input_whose_folder_became_a_link_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, _ = setting(tmp_path)
    for name, text in (("mine", "mine"), ("others", "secret")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(text)
    made = Incoming._made

    def swapped(self: Incoming) -> str:
        (tmp_path / "mine").rename(tmp_path / "moved")
        (tmp_path / "mine").symlink_to("others")
        return made(self)

    monkeypatch.setattr(Incoming, "_made", swapped)
    with pytest.raises(DshpcError, match="cannot be copied"):
        Incoming(str(work)).take(str(tmp_path / "mine/a"))
    assert all_below(work) == set()


def test_the_cluster_is_asked_before_a_large_copy_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    asked: list[str] = []
    for name, size in (("small", 4), ("large", 5), ("larger", 6)):
        (tmp_path / name).write_bytes(b"x" * size)
    monkeypatch.setattr(staging, "_LARGE", 4)
    incoming = Incoming(str(tmp_path / "work"), foresee=lambda: asked.append("cluster"))
    seen = []
    for name in ("small", "large", "larger"):
        incoming.take(str(tmp_path / name))
        seen.append(len(asked))
    assert seen == [0, 1, 1]
