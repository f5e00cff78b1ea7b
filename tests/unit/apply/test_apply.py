from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Wanted
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import atomic, ownership, swap
from dshpc_setup.project.folder import Project

FIRST = {"config/slurm.conf": Wanted("a=1\n"), ".env": Wanted("X=1\n", 0o600)}
SECOND = {"config/slurm.conf": Wanted("a=2\n"), ".env": Wanted("X=2\n", 0o600)}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "p")
    made.prepare()
    return made


def run(project: Project, wanted: dict[str, Wanted]) -> dict[str, str]:
    changes = apply.compare(project, wanted)
    apply.write(project, changes)
    return {item.path: item.action for item in changes}


def text(project: Project, path: str) -> str:
    return (project.folder / path).read_text()


def test_created_then_unchanged_then_updated(project: Project) -> None:
    assert set(run(project, FIRST).values()) == {"created"}
    before = {path: path.stat().st_mtime_ns for path in project.folder.rglob("*") if path.is_file()}
    assert set(run(project, FIRST).values()) == {"unchanged"}
    after = {path: path.stat().st_mtime_ns for path in project.folder.rglob("*") if path.is_file()}
    assert before == after
    assert set(run(project, SECOND).values()) == {"updated"}
    assert text(project, "config/slurm.conf") == "a=2\n"
    assert (project.folder / ".env").stat().st_mode & 0o777 == 0o600


def test_a_marked_file_is_never_written_to(project: Project) -> None:
    run(project, FIRST)
    mine = "a=mine\n# USER_CUSTOMIZED=true\n"
    (project.folder / "config/slurm.conf").write_text(mine)
    assert run(project, SECOND)["config/slurm.conf"] == "kept-custom"
    assert text(project, "config/slurm.conf") == mine
    assert not (project.folder / "config/slurm.conf.dshpc-new").exists()


def test_what_is_no_file_is_told_and_waited_for_by_nobody(project: Project) -> None:
    run(project, FIRST)
    path = project.folder / "config/slurm.conf"
    path.unlink()
    for make, why in ((os.mkfifo, "not a regular file"), (os.mkdir, "Is a directory")):
        make(path)
        with pytest.raises(DshpcError, match=why) as caught:
            apply.compare(project, SECOND)
        assert caught.value.resolution[0].endswith(f"mv {path} {path}.old")
        path.rename(f"{path}.{make.__name__}")
    assert run(project, SECOND)["config/slurm.conf"] == "created"


def test_an_edited_file_is_kept_and_the_new_text_goes_beside_it(project: Project) -> None:
    run(project, FIRST)
    (project.folder / "config/slurm.conf").write_text("a=edited\n")
    changes = apply.compare(project, SECOND)
    assert "-a=edited" in changes[0].diff()
    assert "+a=2" in changes[0].diff()
    for _ in range(2):
        assert run(project, SECOND)["config/slurm.conf"] == "kept-edited"
        assert text(project, "config/slurm.conf") == "a=edited\n"
        assert text(project, "config/slurm.conf.dshpc-new") == "a=2\n"


def test_an_edit_back_to_our_text_is_ours_again(project: Project) -> None:
    run(project, FIRST)
    (project.folder / "config/slurm.conf").write_text("a=2\n")
    assert run(project, SECOND)["config/slurm.conf"] == "unchanged"
    assert run(project, FIRST)["config/slurm.conf"] == "updated"


def test_a_compose_file_of_somebody_else_is_refused(project: Project) -> None:
    (project.folder / "docker-compose.yml").write_text("services: {}\n")
    with pytest.raises(DshpcError) as caught:
        apply.compare(project, {"docker-compose.yml": Wanted("x: 1\n")})
    assert "not ours" in caught.value.brief


@pytest.mark.parametrize(("edit", "action"), [("", "updated"), ("# mine\n", "kept-edited")])
def test_a_compose_file_of_ours_is_known_without_the_manifest(
    project: Project, edit: str, action: str
) -> None:
    """The folder config/, and the manifest with it, may have been deleted."""
    label = ownership.digest('x: 1\n  org.dshpc.rendered: ""\n')[:32]
    (project.folder / "docker-compose.yml").write_text(
        f'x: 1\n  org.dshpc.rendered: "{label}"\n{edit}'
    )
    assert run(project, {"docker-compose.yml": Wanted("x: 2\n")}) == {"docker-compose.yml": action}


@pytest.mark.parametrize("at", range(1, 6))
def test_ctrl_c_between_the_renames_comes_after_them(
    project: Project, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    run(project, FIRST)
    calls = 0
    real = os.replace

    def interrupted(old: str | Path, new: str | Path) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        real(old, new)

    monkeypatch.setattr(os, "replace", interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        apply.write(project, apply.compare(project, SECOND))
    monkeypatch.undo()
    found = {name: text(project, name) for name in FIRST}
    assert found in (
        {name: item.text for name, item in FIRST.items()},
        {name: item.text for name, item in SECOND.items()},
    )
    assert (found == {name: item.text for name, item in FIRST.items()}) is (at == 1)
    assert not list(project.folder.rglob("*.dshpc-tmp"))


def test_the_dry_run_names(project: Project) -> None:
    changes = apply.planned(apply.compare(project, FIRST))
    assert {item.action for item in changes} == {"would-create"}
    assert not (project.folder / "config").exists()


@pytest.mark.parametrize("fail_at", range(1, 5))
def test_a_full_disk_leaves_all_old_files(
    project: Project, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    run(project, FIRST)
    calls = {"fsync": 0}
    real = os.fsync

    def full(handle: int) -> None:
        calls["fsync"] += 1
        if calls["fsync"] == fail_at:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DshpcError) as caught:
        run(project, SECOND)
    assert "disk is full" in caught.value.brief
    monkeypatch.undo()
    assert text(project, "config/slurm.conf") == "a=1\n"
    assert text(project, ".env") == "X=1\n"
    assert not list(project.folder.rglob("*.dshpc-tmp"))


class Killed(BaseException):
    pass


class Kill:
    """Ends the run before the rename of that number, whichever call it is."""

    def __init__(self, at: int) -> None:
        self._left = at

    def before(self, real: Callable[..., None]) -> Callable[..., None]:
        def renamed(*arguments: object) -> None:
            self._left -= 1
            if self._left == 0:
                raise Killed
            real(*arguments)

        return renamed


@pytest.mark.parametrize("fail_at", range(1, 6))
def test_a_run_killed_at_any_rename_ends_all_old_or_all_new(
    project: Project, monkeypatch: pytest.MonkeyPatch, fail_at: int
) -> None:
    run(project, FIRST)
    kill = Kill(fail_at)
    monkeypatch.setattr(os, "replace", kill.before(os.replace))
    monkeypatch.setattr(swap, "rename_exchange", kill.before(swap.rename_exchange))
    killed = False
    try:
        run(project, SECOND)
    except Killed:
        killed = True
    monkeypatch.undo()
    apply.finish_interrupted(project)
    now = (text(project, "config/slurm.conf"), text(project, ".env"))
    if fail_at == 1:
        assert now == ("a=1\n", "X=1\n")  # the journal was never written
    else:
        assert now == ("a=2\n", "X=2\n")
    assert killed == (fail_at <= 4)
    assert not list(project.folder.rglob("*.dshpc-tmp"))
    assert set(run(project, SECOND).values()) <= {"unchanged", "updated"}


@given(st.binary(max_size=40))
def test_any_edit_survives(tmp_path_factory: pytest.TempPathFactory, edit: bytes) -> None:
    project = Project(tmp_path_factory.mktemp("edit"))
    project.prepare()
    run(project, FIRST)
    path = project.folder / "config/slurm.conf"
    path.write_bytes(edit)
    run(project, SECOND)
    if edit not in (b"a=1\n", b"a=2\n"):
        assert path.read_bytes() == edit


def test_a_file_system_with_modes_of_its_own_takes_what_is_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.fchmod", refuses)
    atomic.write_atomic(tmp_path / "plain", "x")
    assert (tmp_path / "plain").read_text() == "x"
    with pytest.raises(DshpcError, match="permission denied"):
        atomic.write_atomic(tmp_path / "secret", "x", mode=0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


@pytest.mark.parametrize("planted", ["link", "file", "pipe"])
def test_a_temporary_file_is_never_one_that_is_there(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp others lay links and files where we are about to write."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(atomic, "temporary_name", lambda _: ".foreseen")
    at = tmp_path / ".foreseen"
    {
        "link": lambda: at.symlink_to(victim),
        "file": lambda: os.link(victim, at),
        "pipe": lambda: os.mkfifo(at),
    }[planted]()
    with pytest.raises(DshpcError, match="Cannot write"):
        atomic.write_atomic(tmp_path / "report", "secret", 0o600)
    assert victim.read_text() == "precious"
    assert not (tmp_path / "report").exists()
    assert os.path.lexists(at)  # what is not ours is not removed either


def test_the_name_of_a_temporary_file_cannot_be_foreseen(tmp_path: Path) -> None:
    for old in (".report.dshpc-tmp", ".report.000000000000.dshpc-tmp"):
        (tmp_path / old).symlink_to(tmp_path / "victim")
    atomic.write_atomic(tmp_path / "report", "text")
    assert (tmp_path / "report").read_text() == "text"
    assert not (tmp_path / "victim").exists()
    assert len({atomic.temporary_name("x") for _ in range(50)}) == 50


def test_what_a_killed_run_left_is_swept(project: Project) -> None:
    (project.folder / "config").mkdir(exist_ok=True)
    project.own.mkdir(exist_ok=True)
    names = ("config/.slurm.conf.0a1b2c3d4e5f.dshpc-tmp", ".dshpc/.runtime.json.dshpc-tmp",
             ".docker-compose.yml.dshpc-new.0a1b2c3d4e5f.dshpc-tmp")  # fmt: skip
    kept = ("config/.mine.dshpc-tmp", ".report.tar.gz.0a1b2c3d4e5f.dshpc-tmp")
    for name in (*names, *kept):
        (project.folder / name).touch()
    apply.finish_interrupted(project)
    assert [name for name in (*names, *kept) if (project.folder / name).exists()] == list(kept)


def test_a_text_beside_a_file_that_holds_the_same_again_goes(project: Project) -> None:
    run(project, FIRST)
    conf, beside = project.folder / "config/slurm.conf", "config/slurm.conf.dshpc-new"
    for back in ("a=1\n", "a=2\n"):  # the edit taken back; the new text taken over
        conf.write_text("a=edited\n")
        assert run(project, SECOND)["config/slurm.conf"] == "kept-edited"
        conf.write_text(back)
        assert run(project, SECOND)["config/slurm.conf"] in ("updated", "unchanged")
        assert not (project.folder / beside).exists()
    (project.folder / beside).write_text("a=2\n# a note of somebody's\n")
    run(project, SECOND)
    assert text(project, beside) == "a=2\n# a note of somebody's\n"
