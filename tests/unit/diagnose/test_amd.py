"""AMD's driver and cards: where each check fires, where it must not, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.diagnose.amd import CHECKS
from tests.unit.diagnose.known import findings, known
from tests.unit.diagnose.tables import Tables, text

M = "mi210x4-xgmi"
FIRES = {
    "DSH-AM-038": (f"{M}/amd-no-group", f"{M}/healthy"),
    "DSH-AM-039": ("mi300x-no-kfd", "mi210-another-module-blacklisted"),
    "DSH-AM-042": ("mi300x-cpx-short", "mi300x-cpx"),
    "DSH-AM-044": ("mi210x4-one-not-in-kfd/amd-atomics", f"{M}/amd-atomics-done"),
    "DSH-AM-084": ("mi300x-no-driver", "mi300x-no-kfd"),
    "DSH-AM-085": (f"{M}/amd-ring-timeout", f"{M}/amd-no-reset"),
    "DSH-AM-101": ("mi300x-no-driver/amd-no-firmware", f"{M}/amd-optional-firmware"),
    "DSH-AM-102": (f"{M}/amd-ras", f"{M}/amd-ras-none"),
}
"""Id -> a machine where it must fire, and its near miss."""

NOTES = {
    "DSH-AM-038": ("mi300x-kfd-denied", "mi300a"),
    "DSH-AM-043": ("wsl2-no-nvidia", "wsl2-rtx3080"),
}
"""The same for what is worth knowing only."""

MORE = {
    ("DSH-AM-038", f"{M}/amd-other-group"): "error",
    ("DSH-AM-038", "workstation-rtx4090"): "skipped",
    ("DSH-AM-039", "mi210x4-one-not-in-kfd"): "warn",
    ("DSH-AM-039", "mi210-amdgpu-blacklisted"): "error",
    ("DSH-AM-039", "mi210-nomodeset"): "error",
    ("DSH-AM-039", "mi300x-no-driver"): "skipped",
    ("DSH-AM-039", "mi300x-vfio"): "skipped",
    ("DSH-AM-039", "laptop-amd-display"): "skipped",
    ("DSH-AM-039", M): "ok",
    ("DSH-AM-041", "mi300x-cpx"): "ok",
    ("DSH-AM-041", "strix-halo"): "ok",
    ("DSH-AM-041", "vega-no-gfx-target"): "skipped",
    ("DSH-AM-042", "mi300x-dpx"): "ok",
    ("DSH-AM-043", M): "skipped",
    ("DSH-AM-043", "wsl2-no-dxg"): "skipped",
    ("DSH-AM-044", f"{M}/amd-log-denied"): "skipped",
    ("DSH-AM-044", "workstation-rtx4090/healthy"): "skipped",
    ("DSH-AM-084", "mi210-amdgpu-blacklisted"): "skipped",
    ("DSH-AM-084", "mi210-another-module-blacklisted"): "error",
    ("DSH-AM-084", "mi300x-vfio"): "skipped",
    ("DSH-AM-085", f"{M}/amd-reset-failed"): "warn",
    ("DSH-AM-085", f"{M}/healthy"): "ok",
    ("DSH-AM-085", M): "skipped",
    ("DSH-AM-101", "mi300x-no-driver/amd-no-firmware"): "error",
    ("DSH-AM-101", f"{M}/amd-log-denied"): "skipped",
    ("DSH-AM-102", f"{M}/amd-log-denied"): "skipped",
    ("DSH-AM-102", f"{M}/amd-ras"): "warn",
    ("DSH-AM-102", "mi210x4-ras-errors"): "warn",
    ("DSH-AM-102", f"{M}/amd-ras-fatal"): "error",
}

WORDS = {
    ("DSH-AM-038", f"{M}/amd-no-group"): "groups of the nodes: 109",
    ("DSH-AM-038", "mi300x-kfd-denied"): 'usermod -aG render,video "$USER"',
    ("DSH-AM-039", "mi300x-no-kfd"): "sudo dmesg | grep -i kfd",
    ("DSH-AM-039", "mi210-amdgpu-blacklisted"): "sudoedit /etc/modprobe.d/no-gpu.conf",
    ("DSH-AM-039", "mi210-nomodeset"): "Take nomodeset out of the kernel's command line",
    ("DSH-AM-042", "mi300x-cpx-short"): "echo CPX | sudo tee /sys/bus/pci/devices/0000:26:00.0/",
    ("DSH-AM-043", "wsl2-no-nvidia"): "HSA_ENABLE_DXG_DETECTION=1 rocminfo",
    ("DSH-AM-044", "mi210x4-one-not-in-kfd/amd-atomics"): "PCI rejects atomics",
    ("DSH-AM-084", "mi300x-no-driver"): "sudo modprobe amdgpu",
    ("DSH-AM-085", f"{M}/amd-ring-timeout"): "ring comp_1.0.1 timeout",
    ("DSH-AM-085", f"{M}/amd-reset-failed"): "sudo reboot",
    ("DSH-AM-101", "mi300x-no-driver/amd-no-firmware"): "psp_13_0_6_sos.bin",
    ("DSH-AM-102", f"{M}/amd-ras-fatal"): "sudo reboot",
    ("DSH-AM-102", "mi210x4-ras-errors"): "2 in umc",
}


def found(about: CheckInput, identity: str) -> Finding:
    return next(finding for finding in diagnose(about, CHECKS) if finding.id == identity)


class TestAmd(Tables):
    checks = CHECKS
    fires = FIRES
    notes = NOTES
    states = MORE
    words = WORDS


@pytest.mark.parametrize("name", ["vm-no-gpu", "workstation-rtx4090", "max1550", "macos-arm"])
def test_where_amd_has_nothing_all_is_skipped(name: str) -> None:
    assert {finding.state for finding in diagnose(known(name), CHECKS)} == {"skipped"}


def test_a_blacklisted_driver_has_a_title_of_its_own() -> None:
    finding = findings("mi210-amdgpu-blacklisted")["DSH-AM-039"]
    assert finding.title == "AMD's driver amdgpu is blacklisted"
    assert "`blacklist amdgpu`" in finding.cause


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ("ubuntu", "sudo update-initramfs -u"),
        ("fedora", "sudo dracut --force"),
        ("opensuse-leap", "sudo dracut --force"),
        ("arch", "sudo mkinitcpio -P"),
        ("nixos", None),
    ],
)
def test_the_next_start_loads_it_by_the_way_of_the_distribution(
    system: str, command: str | None
) -> None:
    here = known("mi210-amdgpu-blacklisted")
    platform = replace(here.facts.platform, os_id=system, os_like=())
    finding = found(replace(here, facts=replace(here.facts, platform=platform)), "DSH-AM-039")
    assert finding.fix[-1].command == (command or "sudo modprobe amdgpu")


def test_a_device_node_that_udev_did_not_make() -> None:
    from dshpc_setup.facts import Because, Disagreement

    here = known(M)
    layers = (Because("KFD", "lists GPUs"), Because("/dev", "there is no kfd"))
    told = Disagreement("/dev/kfd", layers, "udev has not made the device node; jobs need it")
    gpus = replace(here.facts.gpus, disagreements=(told,))
    finding = found(replace(here, facts=replace(here.facts, gpus=gpus)), "DSH-AM-039")
    assert (finding.state, finding.title) == ("error", "/dev/kfd is missing")
    assert "/dev/kfd: KFD: lists GPUs" in finding.evidence


def test_a_rootless_engine_opens_the_nodes_as_its_user() -> None:
    here = known("mi300x-kfd-denied")
    engine = replace(here.facts.engine, rootless=True)
    finding = found(replace(here, facts=replace(here.facts, engine=engine)), "DSH-AM-038")
    assert finding.state == "error"
    assert "rootless" in finding.cause
    well = known("mi300a")
    engine = replace(well.facts.engine, rootless=True)
    other = replace(well, facts=replace(well.facts, engine=engine))
    assert found(other, "DSH-AM-038").state == "ok"


def test_cdi_brings_the_groups_itself() -> None:
    here = known(f"{M}/healthy")
    seen = replace(here.observed, written_gpus=("cdi amd.com/gpu=all",))
    assert found(replace(here, observed=seen), "DSH-AM-038").state == "ok"


@pytest.mark.parametrize(
    ("target", "state", "word"),
    [
        ("gfx803", "info", "hipErrorNoBinaryForGpu"),
        ("gfx1010", "info", "hipErrorNoBinaryForGpu"),
        ("gfx1032", "info", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("gfx1030", "ok", "gfx1030"),
        ("gfx906", "ok", "gfx906"),
        ("gfx1100", "ok", "gfx1100"),
    ],
)
def test_targets_that_rocm_does_not_know(target: str, state: str, word: str) -> None:
    here = known(M)
    devices = tuple(replace(gpu, compute=target) for gpu in here.facts.gpus.devices)
    gpus = replace(here.facts.gpus, devices=devices)
    finding = found(replace(here, facts=replace(here.facts, gpus=gpus)), "DSH-AM-041")
    assert finding.state == state
    assert word in text(finding)


def test_a_card_that_kfd_passed_over_is_explained_by_its_slot() -> None:
    here = known("mi300x-no-kfd")
    log = known(f"{M}/amd-atomics").observed.kernel
    told = replace(here, observed=replace(here.observed, kernel=log))
    assert found(told, "DSH-AM-039").caused_by == "DSH-AM-044"
    assert found(here, "DSH-AM-039").caused_by is None


def test_a_card_that_kfd_does_not_list_though_there_is_a_kfd() -> None:
    finding = findings("mi210x4-one-not-in-kfd")["DSH-AM-039"]
    assert (finding.state, finding.title) == ("warn", "KFD does not list an AMD card")
    assert "modprobe" not in text(finding), "the driver is loaded"


def test_a_kernel_without_kfd() -> None:
    finding = findings("mi300x-no-kfd")["DSH-AM-039"]
    assert finding.title == "/dev/kfd is missing"
    assert "HSA_AMD" in text(finding)


def test_a_gpu_that_may_not_be_used_is_not_absent() -> None:
    finding = findings("mi300x-nodes-denied")["DSH-AM-039"]
    assert (finding.state, "could not be read" in finding.cause) == ("skipped", True)
    assert findings("vm-no-gpu")["DSH-AM-039"].cause == "there is no AMD GPU"


def test_a_compose_file_without_groups_is_one_fault() -> None:
    found_all = findings(f"{M}/amd-no-group")
    assert found_all["DSH-FI-010"].caused_by == "DSH-AM-038"
    commands = [fix.command or "" for fix in found_all["DSH-AM-038"].fix]
    assert not any("usermod" in command for command in commands), "the engine opens them as root"


def test_atomics_of_one_slot_are_no_error_where_other_cards_work() -> None:
    assert findings("mi210x4-one-not-in-kfd/amd-atomics")["DSH-AM-044"].state == "warn"
    here = known("mi300x-no-kfd")
    log = known(f"{M}/amd-atomics").observed.kernel
    told = replace(here, observed=replace(here.observed, kernel=log))
    assert found(told, "DSH-AM-044").state == "error"


@pytest.mark.parametrize(
    "name", [M, "rx7900xtx-with-igpu", "rtx4090-beside-rx7900xtx", "strix-halo"]
)
def test_a_card_that_kfd_passed_over_is_no_fault_where_it_has_all_that_are_for_jobs(
    name: str,
) -> None:
    """The display part of many processors is passed over; the line does not say which card it was."""
    here = known(name)
    log = known(f"{M}/amd-atomics").observed.kernel
    told = replace(here, observed=replace(here.observed, kernel=log))
    assert found(told, "DSH-AM-044").state == "ok"
