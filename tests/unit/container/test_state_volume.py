"""The state volume: room in it, and whose it is."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dshpc_setup.container import state_volume
from dshpc_setup.container.config import Candidate
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm.paths import Paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "var/lib/dshpc/state/slurmctld").mkdir(parents=True)
    return Paths(str(tmp_path))


def left(blocks: int) -> SimpleNamespace:
    return SimpleNamespace(f_bavail=blocks, f_frsize=4096, f_blocks=1000)


def test_a_volume_with_room_is_left_as_it_was(paths: Paths) -> None:
    state_volume.ensure_room(paths)
    assert os.listdir(paths.state) == ["slurmctld"]


def test_a_full_volume_is_refused_and_an_almost_full_one_is_not(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: left(64))
    state_volume.ensure_room(paths)
    monkeypatch.setattr(os, "statvfs", lambda _: left(63))
    with pytest.raises(DshpcError, match="The state volume is full: 252 KiB are left"):
        state_volume.ensure_room(paths)


def test_a_volume_that_cannot_be_written_is_said(paths: Paths) -> None:
    Path(paths.state, ".dshpc-room").mkdir()
    with pytest.raises(DshpcError, match="cannot write"):
        state_volume.ensure_room(paths)


@pytest.mark.parametrize(
    ("saved", "conf", "foreign"),
    [
        (None, "ClusterName=lab", False),
        ("lab|12", "ClusterName=lab", False),
        ("lab", "ClusterName=lab", False),
        ("old|12", "ClusterName=lab", True),
        ("lab2|12", "ClusterName=lab", True),
        ("old|12", "# no name", False),  # slurmctld has words of its own for that
        ("old|12", "ClusterName=lab\nStateSaveLocation=/elsewhere", False),
    ],
)
def test_whose_state_it_is(paths: Paths, saved: str | None, conf: str, foreign: bool) -> None:
    if saved is not None:
        Path(paths.state, "slurmctld/clustername").write_text(saved)
    error = state_volume.foreign_error(paths, Candidate({"slurm.conf": conf}, {}, {}))
    assert (error is not None) is foreign
    if error is not None:
        assert "--prefix" in error.resolution[0]
        assert Path(paths.state, "slurmctld/clustername").exists()
