"""A folder that root works in for somebody else: swapped for a link, it leads nowhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dshpc_setup.apply import apply
from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import anchored, atomic, swap
from dshpc_setup.image import context
from dshpc_setup.project.folder import Project


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs this: as root among links of other users."""
    monkeypatch.setattr(anchored, "_is_needed", lambda: True)
    monkeypatch.setattr(anchored, "_is_roots", lambda _at, _link: False)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """What nothing may be written in."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "there").write_text("theirs")
    return folder


def untouched(folder: Path) -> None:
    assert [path.name for path in folder.iterdir()] == ["there"]
    assert (folder / "there").read_text() == "theirs"


@pytest.mark.parametrize("part", ["config", "a/config", "config/b"])
def test_no_writer_follows_a_link_on_its_way(part: str, tmp_path: Path, elsewhere: Path) -> None:
    link = tmp_path / part
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    path = link / "there"
    writers: list[Callable[[], object]] = [
        lambda: atomic.write_atomic(path, "new"),
        lambda: swap.write(path, "new", "theirs"),
        lambda: atomic.make_folder(link / "made", (os.getuid(), os.getgid())),
    ]
    for write in writers:
        with pytest.raises(DshpcError, match="root follows none"):
            write()
    acts: list[Callable[[], object]] = [
        lambda: atomic.remove(path),
        lambda: atomic.replace(path, link / "other"),
        lambda: atomic.read_plain(path),
        lambda: atomic.sync_folder(link),
    ]
    for act in acts:
        with pytest.raises(OSError, match="root follows none"):
            act()
    untouched(elsewhere)


def test_a_folder_that_is_swapped_while_it_is_written_in(tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / "config").mkdir()
    with anchored.anchored(tmp_path / "config") as at:
        (tmp_path / "config").rename(tmp_path / "moved")
        (tmp_path / "config").symlink_to(elsewhere)
        atomic.write_atomic(at / "new", "text")
        swap.write(at / "other", "text", None)
    assert sorted(path.name for path in (tmp_path / "moved").iterdir()) == ["new", "other"]
    untouched(elsewhere)


def test_people_are_told_the_path_that_they_know(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing") as told, anchored.anchored(tmp_path) as at:
        os.unlink(at / "missing")
    assert told.value.filename == str(tmp_path / "missing")


def test_links_of_root_are_followed(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchored, "_is_roots", lambda _at, _link: True)
    (tmp_path / "up").symlink_to("../" + tmp_path.name)
    (tmp_path / "link").symlink_to(tmp_path / "up/elsewhere")
    (tmp_path / "file").symlink_to("link/there")
    assert atomic.read_plain(tmp_path / "file") == b"theirs"
    atomic.write_atomic(tmp_path / "link/there", "new")
    assert (elsewhere / "there").read_text() == "new"
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "loop", tmp_path / "loop/there"):
        with pytest.raises(OSError, match=r"root follows none|Too many levels"):
            atomic.read_plain(path)


def test_files_are_given_by_no_link_and_only_what_root_has_made(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setattr(
        os, "fchown", lambda at, *_: given.append(os.readlink(f"/proc/self/fd/{at}"))
    )
    monkeypatch.setattr(os, "chown", lambda *_, **__: pytest.fail("by its path"))
    project = Project(tmp_path / "p", (4711, 4711))
    build = tmp_path / "p/.dshpc/build"
    (build / "inner").mkdir(parents=True)
    (build / "inner/file").write_text("")
    (build / "link").symlink_to(elsewhere)
    os.link(elsewhere / "there", build / "name")
    project.give_to_owner(build, build.with_name("missing"))
    assert sorted(given) == [str(build), f"{build}/inner", f"{build}/inner/file"]
    given.clear()
    build.rename(tmp_path / "moved")
    build.symlink_to(elsewhere)
    with pytest.raises(DshpcError, match="root follows none"):
        project.give_to_owner(build)
    assert given == []


def test_the_lock_is_not_made_behind_a_link(tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / ".dshpc").symlink_to(elsewhere)
    with pytest.raises(DshpcError, match="root follows none"), Project(tmp_path).lock():
        pass
    untouched(elsewhere)


def test_the_build_folder_is_not_written_behind_a_link(tmp_path: Path, elsewhere: Path) -> None:
    site = SiteFiles()
    for link in (".dshpc", ".dshpc/build-secrets"):
        place = tmp_path / link
        if place.parent != tmp_path:
            place.parent.unlink()
            place.parent.mkdir()
        place.symlink_to(elsewhere)
        with pytest.raises(DshpcError, match=r"could not be written"):
            context.write_context(tmp_path / ".dshpc/build", buildkit=True, site=site)
        untouched(elsewhere)


@pytest.mark.parametrize(
    "journal",
    [
        {"renames": [["evil", "{elsewhere}/there"]]},
        {"renames": [["{elsewhere}/there", "config/slurm.conf"]]},
        {"renames": [["config/evil", "config/../../elsewhere/there"]]},
        {"renames": [["config/there", "config/slurm.conf"]]},
        {"renames": [], "removals": ["{elsewhere}/there"]},
        {"renames": [], "removals": ["../elsewhere/there"]},
        {"renames": [], "removals": ["config/.."]},
    ],
)
def test_a_journal_that_another_has_written_names_files_of_runs_alone(
    journal: dict[str, object], tmp_path: Path, elsewhere: Path
) -> None:
    project = Project(tmp_path / "p")
    (project.folder / "config").mkdir(parents=True)
    for name in ("evil", "config/evil", "config/there"):
        (project.folder / name).write_text("evil")
    project.own.mkdir()
    text = json.dumps(journal).replace("{elsewhere}", str(elsewhere))
    (project.own / "journal.json").write_text(text)
    with pytest.raises(DshpcError, match="names a file that no run writes"):
        apply.finish_interrupted(project)
    untouched(elsewhere)
    assert not (project.folder / "config/slurm.conf").exists()
