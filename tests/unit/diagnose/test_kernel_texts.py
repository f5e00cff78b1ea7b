"""What doctor says of kernel logs that people posted: on the first machine that has them, as a folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dshpc_setup.checkup import examine_recorded, kernel
from dshpc_setup.diagnose import CheckInput, Finding, diagnose, exit_code
from dshpc_setup.errors import Exit
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import KernelLog
from dshpc_setup.record.scrub import Scrubber
from tests.unit.diagnose.kernel_texts import NVIDIA, POSTED, RAS, Posted
from tests.unit.diagnose.known import FOLDER, known
from tests.unit.diagnose.tables import text

OF_THE_LOG = ("DSH-NV-005", "DSH-NV-020", "DSH-NV-081", "DSH-NV-084", "DSH-NV-101", "DSH-NV-102",
              "DSH-NV-103", "DSH-NV-104", "DSH-NV-105", "DSH-AM-101", "DSH-AM-102")  # fmt: skip


def with_log(machine: str, log: str) -> CheckInput:
    here = known(machine)
    seen = replace(here.observed, kernel=KernelLog("present", kernel.parse(log)))
    return replace(here, observed=seen)


def faults(about: CheckInput) -> dict[str, Finding]:
    return {each.id: each for each in diagnose(about) if each.state in ("warn", "error")}


@pytest.mark.parametrize("posted", POSTED, ids=lambda it: f"{it.finding}-{it.link[8:]}")
def test_what_people_posted_is_told(posted: Posted) -> None:
    found = faults(with_log(posted.machine, posted.text))
    told = {each for each in found if each in OF_THE_LOG}
    if posted.finding is None:
        assert not told
        return
    assert posted.finding in told
    finding = found[posted.finding]
    assert posted.words in text(finding)
    root = found[finding.caused_by] if finding.caused_by else finding
    assert root.id in OF_THE_LOG, "the log's own cause stands on top"


@pytest.mark.parametrize("posted", [one for one in POSTED if one.machine == NVIDIA])
def test_a_driver_that_is_not_loaded_is_explained_by_it(posted: Posted) -> None:
    found = faults(with_log(posted.machine, posted.text))
    if posted.finding == "DSH-NV-020":
        return  # a card beside it
    assert found["DSH-NV-062"].caused_by == posted.finding
    assert found["DSH-GP-001"].caused_by == posted.finding


@pytest.mark.parametrize(("line", "state"), RAS)
def test_amds_own_counts(line: str, state: str) -> None:
    findings = {each.id: each for each in diagnose(with_log("mi210x4-xgmi", line))}
    assert findings["DSH-AM-102"].state == state


def test_a_missing_firmware_is_why_amds_driver_is_not_loaded() -> None:
    posted = next(one for one in POSTED if one.finding == "DSH-AM-101")
    found = faults(with_log(posted.machine, posted.text))
    assert found["DSH-AM-084"].caused_by == "DSH-AM-101"
    stopped = "amdgpu 0000:83:00.0: amdgpu: Fatal error during GPU init"
    other = faults(
        with_log(posted.machine, f"{stopped}\namdgpu: probe of 0000:83:00.0 failed with error -12")
    )
    assert "DSH-AM-101" not in other, "it stopped for another reason"
    lone = "amdgpu 0000:83:00.0: Direct firmware load for amdgpu/{}.bin failed with error -2"
    needed = faults(with_log(posted.machine, lone.format("aldebaran_sdma")))
    assert needed["DSH-AM-084"].caused_by == "DSH-AM-101", (
        "the line that says that it stopped is cut off"
    )
    for name in (
        "isp_4_1_0",
        "gc_11_0_0_mes_2",
        "polaris10_ce_2",
        "psp_14_0_1_ta",
        "dcn_3_5_dmcub",
    ):
        assert "DSH-AM-101" not in faults(with_log(posted.machine, lone.format(name)))
    refused = "amdgpu: disagrees about version of symbol drm_dev_alloc"
    assert "refused its module" in faults(with_log(posted.machine, refused))["DSH-AM-084"].cause


@pytest.mark.parametrize("line", [
    "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\n"
    "NVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)",
    "NVRM: GPU 0000:01:00.0: GPU does not have the necessary power cables connected.",
    "nvidia: version magic '6.8.0-59-generic SMP' should be '6.8.0-60-generic SMP'",
    "NVRM: The NVIDIA probe routine was not called for 1 device(s).",
])  # fmt: skip
def test_what_was_before_a_card_ran_is_no_fault(line: str) -> None:
    assert not {*faults(with_log("workstation-rtx4090", line))} & {*OF_THE_LOG}


def test_a_card_that_is_kept_for_virtual_machines_is_held_by_choice() -> None:
    log = "NVRM: The NVIDIA probe routine was not called for 1 device(s)."
    assert "DSH-NV-103" not in faults(with_log("workstation-rtx4090-vfio", log))
    nouveau = faults(with_log("workstation-rtx4090-nouveau", log))
    assert "DSH-NV-002" in nouveau
    assert "DSH-NV-103" not in nouveau


XID = "NVRM: Xid (PCI:0000:01:00): {}"
NONE = XID.format("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")


@pytest.mark.parametrize(
    ("log", "state", "code"),
    [
        (XID.format("145, RLW_REMAP Fatal XC0 i0 Link 00 (0x4)"), "error", Exit.ERROR),
        (XID.format("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x4)"), "info", Exit.OK),
        (XID.format("95, pid=1, Uncontained: FBHUB"), "error", Exit.ERROR),
        (XID.format("95, pid=1, Uncontained: FBHUB") + "\n" + NONE, "info", Exit.OK),
        (NONE + "\n" + XID.format("95, pid=1, Uncontained: FBHUB"), "error", Exit.ERROR),
        (XID.format("94, pid=1, Contained: CE User Channel"), "warn", Exit.WARNING),
        (XID.format("31, pid=1, MMU Fault"), "info", Exit.OK),
        (XID.format("9999, something new"), "info", Exit.OK),
    ],
)
def test_a_fatal_one_is_an_error(log: str, state: str, code: Exit) -> None:
    found = [each for each in diagnose(with_log("workstation-rtx4090/healthy", log))
             if each.id == "DSH-NV-081"]  # fmt: skip
    assert (found[0].state, exit_code(found)) == (state, code)


def test_an_error_of_another_card_does_not_end_with_this_ones_reset() -> None:
    other = "NVRM: Xid (PCI:0000:41:00): 95, pid=1, Uncontained: FBHUB"
    log = "\n".join((XID.format("95, pid=1, Uncontained"), other, NONE))
    assert faults(with_log("workstation-rtx4090", log))["DSH-NV-081"].state == "error"


# -- a recorded machine --------------------------------------------------------------------------------


def recorded(tmp_path: Path, name: str, log: str | None = None, **dmesg: object) -> RecordedMachine:
    folder = tmp_path / name
    shutil.copytree(FOLDER / name, folder, ignore=shutil.ignore_patterns("observed", "expected"))
    if log is not None:
        (folder / "kernel.log").write_text(log)
    if dmesg:
        path = folder / "commands.yaml"
        before = yaml.safe_load(path.read_text()) if path.exists() else []
        path.write_text(yaml.safe_dump([*(before or []), {"argv": ["dmesg"], **dmesg}]))
    return RecordedMachine(folder)


def log_of(machine: RecordedMachine) -> KernelLog:
    return examine_recorded(machine).observed.kernel


def test_the_log_of_a_recorded_machine_is_read(tmp_path: Path) -> None:
    posted = POSTED[0]
    machine = recorded(tmp_path, posted.machine, posted.text)
    found = faults(examine_recorded(machine))
    assert found["DSH-NV-062"].caused_by == posted.finding


def test_what_dmesg_answered_there_does_as_well(tmp_path: Path) -> None:
    posted = POSTED[0]
    machine = recorded(tmp_path, posted.machine, stdout=posted.text)
    assert log_of(machine).lines == kernel.parse(posted.text)
    refused = recorded(tmp_path / "other", posted.machine, code=1, stderr="Operation not permitted")
    assert log_of(refused).state == "denied"


def test_a_machine_without_a_log_was_not_asked(tmp_path: Path) -> None:
    assert log_of(recorded(tmp_path, NVIDIA)).state is None
    assert log_of(recorded(tmp_path / "empty", NVIDIA, "")).state == "present"


@pytest.mark.parametrize("numbers", [True, False], ids=["recording", "report"])
@pytest.mark.parametrize("posted", POSTED, ids=lambda it: f"{it.finding}-{it.link[8:]}")
def test_a_scrubbed_log_tells_the_same(posted: Posted, numbers: bool) -> None:
    """What a rule reads is in the vocabulary of what a report keeps."""
    scrubber = Scrubber()
    log = "\n".join(kernel.parse(posted.text))
    scrubber.learn(log)
    told = faults(with_log(posted.machine, scrubber.text(log, numbers=numbers)))
    assert set(told) == set(faults(with_log(posted.machine, log)))
