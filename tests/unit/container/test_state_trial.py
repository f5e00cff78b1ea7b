"""Slurmctld is asked about a file of saved jobs: in a folder that is each asker's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dshpc_setup.container import state_trial, trial
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import FakeMachine

TEXTS = {"slurm.conf": "ClusterName=c\n"}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    os.makedirs(found.run)
    return found


def test_two_that_ask_at_the_same_time_do_not_meet(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the start and `saved-state check` do: slurmctld's service runs that, and the start takes it down."""
    state = tmp_path / "job_state"
    state.write_text("cut off")
    nested: list[bool] = []

    def came_up(
        machine: Machine,
        texts: Mapping[str, str],
        paths: Paths,
        folder: str,
        lay: Callable[[str, tuple[int, int]], None],
    ) -> bool:
        os.makedirs(f"{folder}/state")
        lay(f"{folder}/state", (os.getuid(), os.getgid()))
        copy = Path(folder, "state/job_state")
        if not copy.exists():
            return True  # without a saved state it comes up
        if not nested:
            nested.append(True)
            nested.append(state_trial.refuses(machine, paths, texts)(str(state)))
        return not copy.exists()  # it ends over the file

    monkeypatch.setattr(trial, "came_up", came_up)
    assert state_trial.refuses(FakeMachine(), paths, TEXTS)(str(state))
    assert nested == [True, True]
    assert os.listdir(paths.run) == []
