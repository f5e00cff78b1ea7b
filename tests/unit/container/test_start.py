"""Which configuration is put in force, and what the status says of it: without a Slurm program."""

from __future__ import annotations

import pwd
import socket
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from dshpc_setup.container import config, daemons, start, status, trial, up
from dshpc_setup.container.in_force import in_force
from dshpc_setup.container.look import Seen
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.files.ownership import digest
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.plan.model import ExtraLine
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.paths import Paths

PLAN = ClusterPlan("lab", "lab", "debug", 8, 14374, 1796, 1, 4, 2)
FACTS = HostFacts(
    Platform("linux"), Cpu(8, usable=8), Memory(16000, 16000), Gpus("absent"), Engine("absent")
)
SEEN = Seen(FACTS, PLAN, "image", ())
RENDERED = render_slurm(PLAN)
TYPO = "# USER_CUSTOMIZED=true\n" + RENDERED["slurm.conf"].replace(
    "NodeName=lab", "NodeName=lba[1-2]"
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for folder in ("config", "etc", "run/dshpc", "var/lib/dshpc/state"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/hosts").write_text("10.0.0.2 lab\n")
    monkeypatch.setattr(socket, "gethostname", lambda: "lab")
    paths = Paths(str(tmp_path))
    machine, settings = LocalMachine(str(tmp_path)), Settings(prefix="lab")
    return Run(machine, paths, status.Status(paths), settings, (0, 0))


def test_a_refused_file_is_reported_as_it_was_read(run: Run, tmp_path: Path) -> None:
    config.save_last_good(run.paths, RENDERED)
    (tmp_path / "config/slurm.conf").write_text(TYPO)
    assert in_force(run, SEEN).texts == RENDERED
    assert (tmp_path / "etc/slurm/slurm.conf").read_text() == RENDERED["slurm.conf"]
    kept = run.status.values["kept_last_good"]
    assert kept["brief"] == "config/slurm.conf has no NodeName=lab."
    assert any("Correct config/slurm.conf" in step for step in kept["resolution"])
    assert run.status.values["customized"] == {"slurm.conf": "custom"}
    assert run.status.values["config_sha256"] == {"slurm.conf": digest(TYPO)}


def test_it_is_reported_where_there_is_nothing_to_keep(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config/slurm.conf").write_text(TYPO)
    with pytest.raises(DshpcError, match="NodeName=lab"):
        in_force(run, SEEN)
    assert run.status.values["kept_last_good"] is None
    assert run.status.values["customized"] == {"slurm.conf": "custom"}
    assert run.status.values["config_sha256"] == {"slurm.conf": digest(TYPO)}


def test_a_file_that_cannot_be_read_keeps_the_last_good_ones(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config/slurm.conf").mkdir()
    with pytest.raises(DshpcError, match="cannot be read"):
        in_force(run, SEEN)
    config.save_last_good(run.paths, RENDERED)
    assert in_force(run, SEEN).texts == RENDERED
    assert run.status.values["kept_last_good"]["brief"].startswith("config/slurm.conf cannot be")


def test_a_last_good_one_of_another_node_is_no_way_out(run: Run, tmp_path: Path) -> None:
    config.save_last_good(run.paths, {**RENDERED, "slurm.conf": TYPO})
    (tmp_path / "config/slurm.conf").mkdir()
    with pytest.raises(DshpcError, match="cannot be read"):
        in_force(run, SEEN)


def test_a_file_that_does_not_fit_the_hardware_is_never_replaced_by_the_last_good_one(
    run: Run, tmp_path: Path
) -> None:
    config.save_last_good(run.paths, RENDERED)
    own = "# USER_CUSTOMIZED=true\nName=gpu File=/dev/nvidia7\n"
    (tmp_path / "config/gres.conf").write_text(own)
    with pytest.raises(DshpcError, match=r"config/gres\.conf, line 2: /dev/nvidia7 is no device"):
        in_force(run, SEEN)
    assert not (tmp_path / "etc/slurm").exists()
    assert run.status.values["config_sha256"] == {"gres.conf": digest(own)}


def test_a_start_whose_prolog_has_gone_names_it(run: Run) -> None:
    """With nothing else to start with: what was good names the same program."""
    line = "Prolog=/no/such/prolog.sh"
    plan = replace(PLAN, extra=(ExtraLine("Prolog", line),))
    config.save_last_good(run.paths, render_slurm(plan))
    with pytest.raises(DshpcError) as caught:
        in_force(run, replace(SEEN, plan=plan))
    assert f"{line} is not there in the container." in caught.value.brief
    assert "The node is drained at the first job." in caught.value.details
    steps = "\n".join(caught.value.resolution)
    assert "dshpc config unset slurm_conf_extra" in steps
    assert "configure-environment" in steps


def test_the_queue_of_another_cluster_is_not_taken_over(run: Run, tmp_path: Path) -> None:
    state = tmp_path / "var/lib/dshpc/state/slurmctld"
    state.mkdir()
    (state / "clustername").write_text("lab|77")
    in_force(run, SEEN)
    (state / "clustername").write_text("old|77")
    with pytest.raises(DshpcError, match="belongs to the cluster old, and this one is called lab"):
        in_force(run, SEEN)
    assert (state / "clustername").read_text() == "old|77"


def test_a_start_that_fails_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> NoReturn:
        raise KeyError(name)

    monkeypatch.setattr(pwd, "getpwnam", broken)
    paths = Paths(str(tmp_path))
    with pytest.raises(KeyError):
        start.start(LocalMachine(str(tmp_path)), paths, {"DSHPC_PREFIX": "lab"})
    found = status.read(paths)
    assert found is not None
    assert any("dshpc logs" in step for step in found["failure"]["resolution"])


def test_a_controller_that_ended_after_it_listened_is_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = config.Candidate(RENDERED, {}, {})
    refused = DshpcError("slurm.conf: this scheduler is not known.")
    down: list[str] = []
    monkeypatch.setattr(daemons, "take_down", lambda *given: down.append(given[-1]))
    monkeypatch.setattr(trial, "trial_error", lambda *_given: refused)
    assert up.why_ended(run, candidate, "lab") is None  # it has not ended
    (tmp_path / "run/dshpc/slurmctld.ended").touch()
    assert up.why_ended(run, candidate, "lab") is refused
    assert down == ["slurmd", "slurmctld"]


def test_one_that_ended_for_another_reason_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run/dshpc/slurmctld.ended").touch()
    monkeypatch.setattr(daemons, "take_down", unreachable)
    monkeypatch.setattr(trial, "trial_error", lambda *_given: None)
    monkeypatch.setattr(trial, "parse_error", lambda *_given: None)
    assert up.why_ended(run, config.Candidate(RENDERED, {}, {}), "lab") is None


def unreachable(*given: object) -> NoReturn:
    raise AssertionError(given)
