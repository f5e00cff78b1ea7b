"""A node that was removed does not come back with the next start of slurmctld."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from dshpc_setup.container import nodes, up
from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs.offer import NODES
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


def test_a_cluster_that_has_one_node_again_offers_no_others(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the others had stayed in the state volume: a job was queued for a GPU that is none of it."""
    left = Path(paths.at(f"{NODES}/lab-2"))
    left.mkdir(parents=True)
    (left / "offer.json").write_text("{}")
    for role, stays in (("controller", True), ("alone", False)):
        run = SimpleNamespace(
            paths=paths,
            machine=None,
            settings=SimpleNamespace(node="lab", place=SimpleNamespace(role=role)),
            status=SimpleNamespace(step=lambda _: contextlib.nullcontext()),
            is_worker=False,
        )
        texts = {"slurm.conf": "JobSubmitPlugins=lua\nCliFilterPlugins=lua\n"}
        seen = SimpleNamespace(
            facts=SimpleNamespace(gpus=SimpleNamespace(devices=())),
            plan=SimpleNamespace(sharing=None),
        )
        for name, value in (
            ("toolkits.write", None),
            ("gpu_places.write", ()),
            ("offer.offer", None),
            ("offer.write", None),
            ("nodes.write", None),
            ("check.node_name", "lab"),
        ):
            monkeypatch.setattr(
                f"dshpc_setup.container.{name}", lambda *_, value=value, **__: value
            )
        up.tell_jobs(run, SimpleNamespace(texts=texts), seen, "", own_gres=False)  # type: ignore[arg-type]
        assert left.exists() is stays
