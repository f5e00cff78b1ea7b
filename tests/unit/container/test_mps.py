"""The control daemon of MPS: started where it is needed and there, and words where it is not up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.container import mps
from dshpc_setup.plan.model import ClusterPlan, Sharing
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

PLAN = ClusterPlan("c", "n", "debug", 8, 1000, 100, sharing=Sharing("mps", 100))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "run/dshpc/mps/pipe").mkdir(parents=True)
    return Paths(str(tmp_path))


def machine(paths: Paths, code: int = 0) -> FakeMachine:
    command = f"s6-svc -U {paths.services}/mps"
    return FakeMachine(programs={mps.PROGRAM}, commands={command: Answer(code=code)})


@pytest.mark.parametrize("sharing", [None, Sharing("shard", 4)])
def test_nothing_without_the_setting(paths: Paths, sharing: Sharing | None) -> None:
    unasked = FakeMachine()
    assert mps.prepare(unasked, paths, replace(PLAN, sharing=sharing)) == ()
    assert unasked.ran == []


def test_without_the_program_one_sentence(paths: Paths) -> None:
    (note,) = mps.prepare(FakeMachine(), paths, PLAN)
    assert "percentages of gres/mps are not enforced" in note
    assert "nvidia-cuda-mps-control is not in this container" in note


def test_up_once_it_listens(paths: Paths) -> None:
    Path(paths.run, "mps/pipe/control").touch()
    assert mps.prepare(machine(paths), paths, PLAN, wait_s=0) == ()


def test_an_end_from_before_is_not_taken_for_one_of_now(paths: Paths) -> None:
    Path(paths.run, "mps.ended").write_text("1 0\n")
    Path(paths.run, "mps/pipe/control").touch()
    assert mps.prepare(machine(paths), paths, PLAN, wait_s=0) == ()
    assert not Path(paths.run, "mps.ended").exists()


def test_words_where_it_does_not_listen(paths: Paths) -> None:
    (note,) = mps.prepare(machine(paths), paths, PLAN, wait_s=0)
    assert "it does not listen" in note
    (note,) = mps.prepare(machine(paths, code=111), paths, PLAN, wait_s=0)
    assert "the supervisor does not take the order" in note
