"""Which configuration is put in force, and what the status says of it: without a Slurm program."""

from __future__ import annotations

import pwd
import socket
from pathlib import Path
from typing import NoReturn

import pytest

from dshpc_setup.container import config, start, status
from dshpc_setup.container.places import Places
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.ownership import digest
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.render import render_slurm
from dshpc_setup.settings import Settings

PLAN = ClusterPlan("lab", "lab", "debug", 8, 14374, 1796, 1, 4, 2)
RENDERED = render_slurm(PLAN)
TYPO = "# USER_CUSTOMIZED=true\n" + RENDERED["slurm.conf"].replace(
    "NodeName=lab", "NodeName=lba[1-2]"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> start.Run:
    for folder in ("config", "etc", "run/dshpc", "var/lib/dshpc/state"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/hosts").write_text("10.0.0.2 lab\n")
    monkeypatch.setattr(socket, "gethostname", lambda: "lab")
    places = Places(str(tmp_path))
    machine, settings = LocalMachine(str(tmp_path)), Settings(prefix="lab")
    return start.Run(machine, places, status.Status(places), settings, (0, 0))


def test_a_refused_file_is_reported_as_it_was_read(run: start.Run, tmp_path: Path) -> None:
    config.save_last_good(run.places, RENDERED)
    (tmp_path / "config/slurm.conf").write_text(TYPO)
    assert start._in_force(run, PLAN).texts == RENDERED
    assert (tmp_path / "etc/slurm/slurm.conf").read_text() == RENDERED["slurm.conf"]
    kept = run.status.values["kept_last_good"]
    assert kept["brief"] == "config/slurm.conf has no NodeName=lab."
    assert any("Correct config/slurm.conf" in step for step in kept["resolution"])
    assert run.status.values["customized"] == {"slurm.conf": "custom"}
    assert run.status.values["config_sha256"] == {"slurm.conf": digest(TYPO)}


def test_it_is_reported_where_there_is_nothing_to_keep(run: start.Run, tmp_path: Path) -> None:
    (tmp_path / "config/slurm.conf").write_text(TYPO)
    with pytest.raises(DshpcError, match="NodeName=lab"):
        start._in_force(run, PLAN)
    assert run.status.values["kept_last_good"] is None
    assert run.status.values["customized"] == {"slurm.conf": "custom"}
    assert run.status.values["config_sha256"] == {"slurm.conf": digest(TYPO)}


def test_a_file_that_cannot_be_read_keeps_the_last_good_ones(
    run: start.Run, tmp_path: Path
) -> None:
    (tmp_path / "config/slurm.conf").mkdir()
    with pytest.raises(DshpcError, match="cannot be read"):
        start._in_force(run, PLAN)
    config.save_last_good(run.places, RENDERED)
    assert start._in_force(run, PLAN).texts == RENDERED
    assert run.status.values["kept_last_good"]["brief"].startswith("config/slurm.conf cannot be")


def test_a_last_good_one_of_another_node_is_no_way_out(run: start.Run, tmp_path: Path) -> None:
    config.save_last_good(run.places, {**RENDERED, "slurm.conf": TYPO})
    (tmp_path / "config/slurm.conf").mkdir()
    with pytest.raises(DshpcError, match="cannot be read"):
        start._in_force(run, PLAN)


def test_a_start_that_fails_names_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> NoReturn:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", broken)
    places = Places(str(tmp_path))
    with pytest.raises(KeyError):
        start.start(LocalMachine(str(tmp_path)), places, {"DSHPC_PREFIX": "lab"})
    found = status.read(places)
    assert found is not None
    assert any("docker logs lab-slurm" in step for step in found["failure"]["resolution"])
