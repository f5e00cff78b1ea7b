"""The other nodes of a cluster, asked beside each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.checkup import other_nodes
from dshpc_setup.cluster import workers
from dshpc_setup.container import observe
from dshpc_setup.engine import inspecting
from dshpc_setup.engine.containers import Container
from dshpc_setup.observed.model import WorkFolder
from dshpc_setup.project.folder import Project
from tests.unit.engine.fake import Answer, FakeMachine

UP = Container(
    "1", "lab-slurm-2", "i", "lab-slurm:none", True, "running", None, "healthy", "", None
)
SAID = json.dumps({"wheel_version": "1", "work": {"inode": 7}, "host_name": "lab-2"})


def project(folder: Path) -> Project:
    made = Project(folder)
    (folder / ".dshpc").mkdir(exist_ok=True)
    made.write_json(".dshpc/runtime.json", {"container": "lab-slurm", "work": str(folder)})
    return made


def asked(name: str, folder: Path) -> str:
    return f"docker exec {name} env DSHPC_OBSERVED_WORK={folder} dshpc-node observe"


def test_one_that_does_not_answer_is_named_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {
        "lab-2": UP,
        "lab-3": replace(UP, name="lab-slurm-3"),
        "lab-4": replace(UP, name="lab-slurm-4", running=False, status="exited"),
        "lab-5": replace(UP, name="lab-slurm-5"),
    }
    monkeypatch.setattr(workers, "of_project", lambda *_: there)
    machine = FakeMachine(
        commands={
            asked("lab-slurm-2", tmp_path): Answer(SAID),
            asked("lab-slurm-3", tmp_path): Answer(state="timeout", code=None),
            asked("lab-slurm-5", tmp_path): Answer("no JSON"),
        }
    )
    found = {each.name: each for each in other_nodes.look(machine, project(tmp_path), "c", 5.0)}
    assert list(found) == list(there)
    assert found["lab-2"].inside is not None
    assert found["lab-2"].inside.work == WorkFolder(7)
    assert found["lab-2"].problem is None
    for node, words in (
        ("lab-3", "did not answer within"), ("lab-4", "Its container"), ("lab-5", "cannot be read"),
    ):  # fmt: skip
        assert found[node].inside is None
        assert words in (found[node].problem or "")


def test_the_work_folder_is_told_by_its_number(tmp_path: Path) -> None:
    own = other_nodes.work_here(project(tmp_path))
    assert own == WorkFolder(tmp_path.stat().st_ino)
    assert observe.work_folder(str(tmp_path)) == {"work": own}
    assert observe.work_folder(str(tmp_path / "none")) == {"work": WorkFolder()}
    assert observe.work_folder(None) == {}
    assert observe.WORK == inspecting.WORK


def test_a_folder_without_workers_takes_no_more_time(tmp_path: Path) -> None:
    assert other_nodes.more_s(project(tmp_path)) == 0.0
    assert other_nodes.more_s(None) == 0.0
