"""An AMD card that its own driver calls broken is kept from jobs, and named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dshpc_setup import probes
from dshpc_setup.checkup import examine_recorded
from dshpc_setup.diagnose import diagnose
from dshpc_setup.machine.log import KERNEL_LOG
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.machine.recording import RecordingMachine
from dshpc_setup.plan import plan_cluster
from dshpc_setup.plan.devices import unhealthy_told
from dshpc_setup.probes import kernel_text
from dshpc_setup.probes.amd import broken
from dshpc_setup.problems import RAS_BROKEN
from dshpc_setup.settings import Settings

MACHINES = Path(__file__).parents[2] / "machines"
AT = "0000:63:00.0"
BAD = f"amdgpu {AT}: amdgpu: This GPU is in BAD status."
STARTED = f"[drm] Initialized amdgpu 3.57.0 20150101 for {AT} on minor 1"


@pytest.mark.parametrize(
    "line",
    [
        f"[ 12.5] {BAD}",
        f"amdgpu {AT}: RAS records:273 exceed threshold:256",
        f"Jan  7 14:25:56 node kernel: amdgpu {AT}: amdgpu: GPU will not be initialized. Replace this GPU",
        f"{STARTED}\n{BAD}",
        f"{BAD}\n{STARTED.replace('63', '83')}",
    ],
)
def test_what_calls_a_card_broken(line: str) -> None:
    assert broken.told(f"other\n{line}\nother") == {AT}


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"{BAD}\n{STARTED}",
        f"amdgpu {AT}: amdgpu: 2 uncorrectable hardware errors detected in umc block",
        f"amdgpu {AT}: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
        "somebody: This GPU is in BAD status.",
        "amdgpu 9999999:1:2.0: This GPU is in BAD status.",
    ],
)
def test_what_does_not(line: str) -> None:
    assert broken.told(line) == frozenset()


def machine(tmp_path: Path, log: str | None, name: str = "mi210x4-ras-errors") -> RecordedMachine:
    folder = tmp_path / "machine"
    shutil.copytree(MACHINES / name, folder, ignore=shutil.ignore_patterns("observed", "expected"))
    if log is not None:
        (folder / "kernel.log").write_text(log)
    return RecordedMachine(folder)


@pytest.mark.parametrize(("setting", "count"), [("exclude", 3), ("use", 4)])
def test_it_is_kept_from_jobs_by_the_setting(tmp_path: Path, setting: str, count: int) -> None:
    facts = probes.gather(machine(tmp_path, BAD))
    (ill,) = [gpu for gpu in facts.gpus.devices if gpu.problems]
    assert (ill.pci_bus_id, ill.problems) == (AT, (RAS_BROKEN,))
    plan = plan_cluster(facts, Settings(unhealthy_gpus=setting))
    assert len(plan.gres) == count
    (told,) = unhealthy_told(plan, facts.gpus)
    assert "its driver calls it broken" in told
    assert told.endswith("Jobs do not get it." if setting == "exclude" else "use).")


def test_doctor_says_so_and_what_to_do(tmp_path: Path) -> None:
    found = {each.id: each for each in diagnose(examine_recorded(machine(tmp_path, BAD)))}
    finding = found[RAS_BROKEN]
    assert finding.state == "error"
    assert "The driver calls the card broken. Jobs do not get it." in finding.cause
    assert "configure-environment --unhealthy-gpus use" in [step.command for step in finding.fix]
    assert not [step for step in finding.fix if "reboot" in (step.command or "")]


def test_a_log_without_such_a_line_or_none_changes_nothing(tmp_path: Path) -> None:
    with_log = probes.gather(machine(tmp_path / "a", "amdgpu: something else"))
    without = probes.gather(machine(tmp_path / "b", None))
    assert with_log.gpus == without.gpus
    assert not [gpu for gpu in without.gpus.devices if gpu.problems]


def test_the_log_is_not_asked_where_no_card_counts_errors(tmp_path: Path) -> None:
    told = probes.gather(machine(tmp_path, BAD, "mi210x4-xgmi"))
    assert not [gpu for gpu in told.gpus.devices if gpu.problems]


def test_a_recording_keeps_no_answer_of_the_log(tmp_path: Path) -> None:
    recording = RecordingMachine(machine(tmp_path, BAD))
    told = kernel_text.read(recording, 1.0)
    assert told.text == BAD
    assert recording.which("journalctl") is None
    assert not recording.log.commands
    assert "journalctl" not in recording.log.programs
    assert recording.run(KERNEL_LOG[0], deadline_s=1.0).stdout == BAD
