"""What a kernel's log holds and is over by now: a card that was fixed is no fault until the next restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.diagnose.kernel_log import past, wanted, xids
from dshpc_setup.facts import GpuHealth
from dshpc_setup.observed.model import KernelLog
from dshpc_setup.problems import LOST
from tests.unit.diagnose.known import known
from tests.unit.diagnose.test_kernel_texts import faults, with_log

W, SWITCHED, AMD = "workstation-rtx4090", "h100x8-nvlink", "mi210x4-xgmi"
XID = "NVRM: Xid (PCI:0000:01:00): {}"
OFF = XID.format("79, pid=1, GPU has fallen off the bus.")
LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 01:58:43 UTC 2025"
OPEN = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build"
WISH = XID.format("154, GPU recovery action changed from 0x0 (None) to 0x{} ({})")
AT_START = (
    "NVRM: The NVIDIA GPU 0000:01:00.0\n"
    "NVRM: (PCI ID: 10de:2684) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)
LEGACY = (
    "NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:0fc6)\n"
    "NVRM: installed in this system is supported through the\n"
    "NVRM: NVIDIA 470.xx Legacy drivers. Please\n"
    "NVRM: visit http://www.nvidia.com/object/unix.html for more\n"
    "NVRM: information.  The 570.124.06 NVIDIA driver will ignore\n"
    "NVRM: this GPU.  Continuing probe..."
)
SWITCH = "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 23001, Fatal, Link 30 ingress overflow (First)"


def finding(about: CheckInput, identity: str) -> Finding:
    return next(each for each in diagnose(about) if each.id == identity)


@pytest.mark.parametrize("load", [LOADED, OPEN])
@pytest.mark.parametrize("error", [OFF, XID.format("62, 0096(1c54)"), WISH.format(1, "GPU Reset Required"),
                                   WISH.format(2, "Node Reboot Required")])  # fmt: skip
def test_a_driver_that_was_loaded_anew_has_left_its_errors_behind(load: str, error: str) -> None:
    assert not faults(with_log(W, f"{error}\n{load}"))
    assert faults(with_log(W, f"{load}\n{error}\n{WISH.format(2, 'Node Reboot Required')}"))
    assert faults(with_log(W, f"{error}\n{load}\n{error}\n{WISH.format(2, 'x')}")), "it came again"


def test_an_error_that_is_over_is_told_without_a_step() -> None:
    told = finding(with_log(W, f"{XID.format('62, 1')}\n{LOADED}"), "DSH-NV-081")
    assert told.state == "info"
    assert "works again" in told.title
    assert not [fix for fix in told.fix if fix.command]


@pytest.mark.parametrize("log", [OFF, AT_START])
def test_a_card_that_answers_has_not_fallen_off_the_bus(log: str) -> None:
    about = with_log(W, log)
    assert not faults(about)
    assert finding(about, "DSH-NV-020").state == "info"
    elsewhere = with_log(W, log.replace("0000:01:00", "0000:02:00"))
    assert finding(elsewhere, "DSH-NV-020").state == "error"


@pytest.mark.parametrize("log", [OFF, f"{OFF}\n{LOADED}"])
def test_a_card_that_does_not_answer_is_not_there_again(log: str) -> None:
    about = with_log(W, log)
    (gpu,) = about.facts.gpus.devices
    gone = replace(about.facts.gpus, devices=(replace(gpu, problems=(LOST,)),))
    found = faults(replace(about, facts=replace(about.facts, gpus=gone)))
    assert found["DSH-NV-020"].state == "error"
    assert found["DSH-NV-081"].caused_by == "DSH-NV-020"


def test_a_driver_that_wants_a_restart_is_believed_before_the_card() -> None:
    log = f"{OFF}\n{WISH.format(2, 'Node Reboot Required')}"
    assert faults(with_log(W, log))["DSH-NV-020"].state == "error"


@pytest.mark.parametrize("number", [48, 63, 64, 94, 95, 140, 171, 172])
@pytest.mark.parametrize(
    ("health", "state"),
    [
        (None, None),
        (GpuHealth(), None),
        (GpuHealth(volatile_dram=0, volatile_sram=0, remap_pending=False), "info"),
        (GpuHealth(volatile_dram=0, retirement_pending=False), "info"),
        (GpuHealth(volatile_dram=1, volatile_sram=0), None),
        (GpuHealth(volatile_dram=0, volatile_sram=2), None),
        (GpuHealth(volatile_dram=0, volatile_sram=0, remap_pending=True), None),
        (GpuHealth(volatile_dram=0, retirement_pending=True), None),
        (GpuHealth(volatile_dram=0, volatile_sram=0, remap_failed=True), None),
    ],
)
def test_a_card_that_counts_no_error_since_its_start_was_reset(
    number: int, health: GpuHealth | None, state: str | None
) -> None:
    about = with_log(W, XID.format(f"{number}, pid=1"))
    (gpu,) = about.facts.gpus.devices
    gpus = replace(about.facts.gpus, devices=(replace(gpu, health=health),))
    found = finding(replace(about, facts=replace(about.facts, gpus=gpus)), "DSH-NV-081").state
    assert found == state if state else found in ("warn", "error")


def test_counts_say_nothing_of_other_errors() -> None:
    about = with_log(W, XID.format("119, Timeout after 6s"))
    (gpu,) = about.facts.gpus.devices
    clean = replace(gpu, health=GpuHealth(volatile_dram=0, volatile_sram=0, remap_pending=False))
    gpus = replace(about.facts.gpus, devices=(clean,))
    assert faults(replace(about, facts=replace(about.facts, gpus=gpus)))["DSH-NV-081"]


def test_a_switch_starts_anew_with_the_driver() -> None:
    assert faults(with_log(SWITCHED, f"{LOADED}\n{SWITCH}"))["DSH-NV-101"].state == "error"
    assert "DSH-NV-101" not in faults(with_log(SWITCHED, f"{SWITCH}\n{LOADED}"))


def test_a_card_that_runs_is_not_left_to_an_older_driver() -> None:
    assert "DSH-NV-084" not in faults(with_log(W, LEGACY))
    other = LEGACY.replace("0000:01:00.0", "0000:02:00.0")
    assert faults(with_log(W, other))["DSH-NV-084"].state == "warn"


@pytest.mark.parametrize(("number", "step"), [(1, "reset"), (2, "restart"), (4, "reset"), (6, "reset"),
                                              (7, "restart"), (0, None), (3, None), (5, None)])  # fmt: skip
def test_the_steps_that_a_driver_can_want(number: int, step: str | None) -> None:
    log = KernelLog("present", (WISH.format(number, "in its words"),))
    assert bool(wanted(log, "reset")) == (step == "reset")
    assert bool(wanted(log, "restart")) == (step == "restart")


def test_an_error_of_the_same_words_after_the_load_is_open() -> None:
    log = KernelLog("present", (OFF, LOADED, OFF))
    assert not past(log) & set(xids(log))


def test_a_module_that_is_refused_where_no_driver_is_installed_is_another_ones() -> None:
    log = "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7"
    assert "DSH-NV-004" not in faults(with_log(f"{W}-nouveau", log))
    assert "DSH-NV-004" in faults(with_log(f"{W}-no-driver", log))


# -- AMD -----------------------------------------------------------------------------------------------

FAILED = "amdgpu 0000:63:00.0: amdgpu: GPU reset(1) failed"
DONE = "amdgpu 0000:63:00.0: amdgpu: GPU reset(2) succeeded!"
RAS = (
    "amdgpu 0000:63:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!"
)


@pytest.mark.parametrize("start", ["Initialized amdgpu 3.57.0 20150101 for 0000:63:00.0 on minor 1",
                                   "Initialized amdgpu 3.64.0 for 0000:63:00.0 on minor 1"])  # fmt: skip
@pytest.mark.parametrize("line", [FAILED, RAS])
def test_what_was_before_an_amd_card_started_anew(line: str, start: str) -> None:
    assert faults(with_log(AMD, f"{start}\n{line}"))
    assert not faults(with_log(AMD, f"{line}\n{start}"))
    assert faults(with_log(AMD, f"{line}\n{start.replace('0000:63', '0000:83')}")), "another card's"


def test_a_reset_that_succeeded_at_last_wants_no_restart() -> None:
    assert "sudo reboot" in str(faults(with_log(AMD, f"{DONE}\n{FAILED}"))["DSH-AM-085"].fix)
    told = faults(with_log(AMD, f"{FAILED}\n{DONE}"))["DSH-AM-085"]
    assert "sudo reboot" not in str(told.fix)
    other = DONE.replace("0000:63", "0000:83")
    assert "sudo reboot" in str(faults(with_log(AMD, f"{FAILED}\n{other}"))["DSH-AM-085"].fix)


@pytest.mark.parametrize("machine", ["laptop-amd-display", "workstation-rtx4090-amd-igpu",
                                     "rx7900xtx-with-igpu"])  # fmt: skip
def test_a_screens_own_adapter_is_no_matter_of_jobs(machine: str) -> None:
    left = [gpu for gpu in known(machine).facts.gpus.unused if gpu.vendor == "amd"]
    assert left
    line = f"amdgpu {left[0].pci_bus_id}: amdgpu: GPU reset begin!"
    assert not faults(with_log(machine, line)).keys() & {"DSH-AM-085", "DSH-AM-102", "DSH-AM-101"}


@pytest.mark.parametrize(("address", "fault"), [("0000:00:02.0", False), ("0000:03:00.0", True)])
def test_the_display_part_of_an_intel_processor_may_hang(address: str, fault: bool) -> None:
    log = f"i915 {address}: [drm] GPU HANG: ecode 12:1:8ed9fff2, in Xorg [1234]"
    assert ("DSH-GP-021" in faults(with_log("arc-b580-xe", log))) == fault
