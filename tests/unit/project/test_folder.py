"""Who may change a project folder: told before anything is tried."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.project import writers
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    with made.lock():
        pass
    return made


def another(monkeypatch: pytest.MonkeyPatch, *refused: Path, uid: int = 4321) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "access", lambda path, _mode: path not in refused)


@pytest.mark.parametrize("name", [".dshpc", ".dshpc/lock"])
def test_somebody_elses_cluster(
    project: Project, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = writers.user_name(os.getuid())
    another(monkeypatch, project.folder / name)
    with pytest.raises(DshpcError) as caught, project.lock():
        pass
    assert caught.value.brief.endswith(f"belongs to {owner}.")
    assert (
        f"Only {owner if os.getuid() == 0 else f'{owner} or root'} may change it"
        in caught.value.details
    )


def test_a_group_that_may_write(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    another(monkeypatch)
    with project.lock():
        assert (project.own / "lock").read_text() == f"{os.getpid()}\n"


def test_ones_own_and_root(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps the owner or root from writing is no question of whose it is."""
    for uid in (0, os.getuid()):
        another(monkeypatch, project.own, project.own / "lock", uid=uid)
        with project.lock():
            assert project.own.is_dir()


@pytest.mark.parametrize("text", ["", "{", "[]", None])
def test_homes_are_known_where_the_notes_for_commands_are_damaged(
    tmp_path: Path, text: str | None
) -> None:
    (tmp_path / ".dshpc").mkdir()
    (tmp_path / ".dshpc/settings.json").write_text('{"homes": ["/home"]}')
    if text is not None:
        (tmp_path / ".dshpc/runtime.json").write_text(text)
    assert Project(tmp_path).with_homes(Settings()).homes == ("/home",)
    (tmp_path / ".dshpc/runtime.json").write_text('{"container": "p-slurm"}')
    assert Project(tmp_path).with_homes(Settings()).homes == ()
