"""configure-environment on recorded machines: what a dry run says where a real one would find no GPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup import probes
from dshpc_setup.engine import tools
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Evidence
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.project.folder import Project
from dshpc_setup.setup.pipeline import Configure
from dshpc_setup.setup.report import Report, Step, StepName
from dshpc_setup.setup.run import Options
from tests.unit.engine.fake import Listener
from tests.unit.slow import SlowMachine

MACHINES = Path(__file__).parents[1] / "machines"


class Steps(Listener):
    def begin(self, name: StepName) -> None:
        self.heard.append(name)

    def end(self, step: Step) -> None:
        self.heard.append(f"{step.name} {step.state}")


def configure(name: str, folder: Path, gpu: str) -> Report:
    machine = RecordedMachine(MACHINES / name)
    options = Options(flags={"gpu": gpu}, dry_run=True, replayed=name)
    return Configure(machine, Project(folder, None), options, Steps()).run()


def test_a_missing_toolkit_is_foreseen(tmp_path: Path) -> None:
    report = configure("rtx4090-toolkit-missing", tmp_path, "auto")
    assert report.error is None
    steps = [note for note in report.notes if note[:2] in ("1.", "2.", "3.", "4.")]
    assert "Running CPU-only. To enable GPUs:" in report.notes
    assert any("apt-get install -y nvidia-container-toolkit" in step for step in steps)
    asked = configure("rtx4090-toolkit-missing", tmp_path, "nvidia").error
    assert asked is not None
    assert "nvidia-container-toolkit" in asked.resolution[0] + asked.resolution[1]


def test_a_card_without_a_driver_has_its_steps(tmp_path: Path) -> None:
    report = configure("workstation-rtx4090-no-driver", tmp_path, "auto")
    assert report.error is None
    assert any(note.startswith("1. ") and "nvidia-modprobe" in note for note in report.notes)
    asked = configure("workstation-rtx4090-no-driver", tmp_path, "nvidia").error
    assert asked is not None
    assert "nvidia-modprobe" in asked.resolution[0]


@pytest.mark.parametrize("gpu", ["auto", "nvidia"])
def test_wsl_1_is_refused_as_the_real_run_refuses_it(tmp_path: Path, gpu: str) -> None:
    error = configure("wsl1", tmp_path, gpu).error
    assert error is not None
    assert "wsl --set-version" in error.resolution[0]


def test_what_is_well_is_planned(tmp_path: Path) -> None:
    report = configure("workstation-rtx4090", tmp_path, "nvidia")
    assert report.error is None
    assert not any("CPU only" in note for note in report.notes)


@pytest.mark.parametrize(
    ("answer", "words"),
    [("windows", "SwitchLinuxEngine"), ("403", "plugin x"), ("502", "Rancher Desktop")],
)
def test_an_engine_that_runs_no_linux_container_for_us_ends_the_run_first(
    answer: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = SlowMachine(installed=True)
    seen = probes.gather(machine)
    engine, evidence = replace(seen.engine, os_type="windows"), seen.evidence
    if answer == "403":
        engine = replace(seen.engine, state="denied", detail="authorization denied by plugin x")
        evidence = (Evidence("engine", "denied", "docker", 1.0, engine.detail, 403),)
    platform = seen.platform
    if answer == "502":
        platform = replace(platform, kind="wsl2")
        engine = replace(seen.engine, state="error", detail="Bad Gateway")
        evidence = (Evidence("engine", "error", "docker", 1.0, engine.detail, 502),)
    facts = replace(seen, platform=platform, engine=engine, evidence=evidence)
    monkeypatch.setattr(probes, "gather_surely", lambda *_, **__: facts)
    with pytest.raises(DshpcError) as refused:
        tools.ready(machine, machine, Steps(), interactive=False)
    assert words in f"{refused.value.brief} {' '.join(refused.value.resolution)}"
    assert machine.lines(" install ") == []
