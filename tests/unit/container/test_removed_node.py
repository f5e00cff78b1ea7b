"""A node that was removed does not come back with the next start of slurmctld."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.container import nodes
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import Paths


def saved(*names: str) -> bytes:
    parts = [len(name + "\0").to_bytes(4, "big") + name.encode() + b"\0" for name in names]
    return b"\0\0\0\x11PROTOCOL_VERSION\0" + b"".join(parts)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("StateSaveLocation=/state\n")
    (tmp_path / "state").mkdir()
    return Paths(str(tmp_path))


def orders(monkeypatch: pytest.MonkeyPatch, then: object = None) -> list[tuple[str, ...]]:
    """What slurmctld is told; `then` is called at the second order."""
    given: list[tuple[str, ...]] = []

    def run(_: Slurm, *argv: str, **__: object) -> CommandResult:
        given.append(argv)
        if len(given) == 2 and callable(then):
            then()
        return CommandResult(argv, "present", 1, "", "Invalid node name specified", 1.0)

    monkeypatch.setattr(Slurm, "run", run)
    monkeypatch.setattr(nodes, "_POLL_S", 0.0)
    return given


def test_it_is_awaited_and_slurmctld_is_asked_to_write(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = Path(paths.at("/state/node_state"))
    state.write_bytes(saved("lab", "lab-2"))
    given = orders(monkeypatch, lambda: state.write_bytes(saved("lab", "lab-22", "my-lab-2")))
    nodes.wait_written(LocalMachine(), paths, "lab-2")
    assert len(given) == 2
    nodes.wait_written(LocalMachine(), paths, "lab-2")
    assert len(given) == 2


@pytest.mark.parametrize("is_there", [True, False], ids=["not-written", "no-file"])
def test_where_it_is_never_written_that_is_said(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if is_there:
        Path(paths.at("/state/node_state")).write_bytes(saved("lab", "lab-2"))
    orders(monkeypatch)
    monkeypatch.setattr(nodes, "_WRITTEN_S", 0.05)
    with pytest.raises(DshpcError, match="lab-2 has left the cluster, but slurmctld has not"):
        nodes.wait_written(LocalMachine(), paths, "lab-2")
