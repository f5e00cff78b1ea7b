"""Every machine in tests/machines, replayed: what is concluded from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import probes
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded

FOLDER = Path(__file__).parents[2] / "machines"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/machine.yaml"))

# Written by hand, and never rewritten: the state, the Slurm types, and a word of the reason.
CONCLUSIONS: dict[str, tuple[str, list[str], str]] = {
    "a100x2": ("present", ["a100", "a100"], ""),
    "a100x2-nvml-crashes": ("error", [], "crashed"),
    "a100x2-nvml-denied": ("denied", [], "permission"),
    "a100x2-version-mismatch": ("error", [], "different versions"),
    "container-cgroup-v1-limits": ("absent", [], ""),
    "container-cgroup-v1-no-limits": ("absent", [], ""),
    "container-cgroup-v2-limits": ("absent", [], ""),
    "container-cgroup-v2-no-limits": ("absent", [], ""),
    "container-h100-two-of-eight": ("present", ["h100", "h100"], ""),
    "container-mi300x-one-of-two": ("present", ["mi300x"], "1 AMD GPU(s)"),
    "container-none-handed-over": ("absent", [], "handed to this container"),
    "desktop-arc-a770": ("present", ["a770"], ""),
    "gb10-unified-memory": ("present", ["gb10"], ""),
    "h100-mig": ("present", ["h100", "h100"], ""),
    "h100-mig-minors-table": ("present", ["h100", "h100"], ""),
    "h100-mig-no-instances": ("present", ["h100", "h100"], ""),
    "h100x8": ("present", ["h100"] * 8, ""),
    "h100x8-one-lost": ("present", ["h100"] * 3 + ["gpu"] + ["h100"] * 4, ""),
    "laptop-intel-display": ("absent", [], "Intel processor is not used"),
    "macos-arm": ("unsupported", [], "Metal"),
    "macos-intel": ("unsupported", [], "Docker Desktop"),
    "mi300x-cpx": ("present", ["mi300x"] * 9, ""),
    "mi300x-no-driver": ("error", [], "amdgpu is not loaded"),
    "mixed-h100-t4": ("present", ["h100", "h100", "t4"], ""),
    "t4-nvidia-smi-fails": ("error", [], "libnvidia-ml.so.1"),
    "t4-nvidia-smi-only": ("present", ["t4"], ""),
    "vm-docker-denied": ("absent", [], ""),
    "vm-no-docker": ("absent", [], ""),
    "vm-no-gpu": ("absent", [], ""),
    "vm-podman": ("absent", [], ""),
    "vm-remote-engine": ("absent", [], ""),
    "vm-rootless-docker": ("absent", [], ""),
    "vm-snap-docker": ("absent", [], ""),
    "workstation-rtx4090": ("present", ["rtx_4090"], ""),
    "workstation-rtx4090-amd-igpu": ("present", ["rtx_4090"], ""),
    "workstation-rtx4090-no-driver": ("error", [], "driver is not loaded"),
    "workstation-rtx4090-no-library": ("error", [], "libnvidia-ml.so.1"),
    "workstation-rtx4090-nouveau": ("error", [], "nouveau"),
    "workstation-rtx4090-nvml-hangs": ("timeout", [], "hang"),
    "workstation-rtx4090-vfio": ("absent", [], "vfio-pci"),
    "wsl1": ("unsupported", [], "WSL 1"),
    "wsl2-no-nvidia": ("absent", [], ""),
    "wsl2-rtx3080": ("present", ["rtx_3080"], ""),
}

ENGINES = {
    "workstation-rtx4090": ("present", "engine", False, "2.38.2"),
    "wsl2-rtx3080": ("present", "desktop", False, "2.38.2"),
    "macos-arm": ("present", "desktop", False, "2.38.2"),
    "macos-intel": ("absent", None, None, "2.38.2"),
    "vm-no-docker": ("absent", None, None, None),
    "vm-docker-denied": ("denied", None, None, "1.29.2"),
    "vm-rootless-docker": ("present", "engine", True, "2.38.2"),
    "vm-podman": ("present", "podman", False, "2.38.2"),
    "vm-snap-docker": ("present", "snap", False, "2.38.2"),
    "vm-remote-engine": ("present", "remote", False, "2.38.2"),
}

# CPUs usable and why, memory limit in MiB and why.
LIMITS = {
    "container-cgroup-v2-limits": (2, "cgroup quota", 4096, "cgroup"),
    "container-cgroup-v2-no-limits": (16, None, 65536, None),
    "container-cgroup-v1-limits": (4, "cpuset", 2048, "cgroup"),
    "container-cgroup-v1-no-limits": (16, None, 65536, None),
    "macos-intel": (12, None, 16384, None),
}


def look(name: str) -> HostFacts:
    machine = RecordedMachine(FOLDER / name)
    return probes.gather(machine, engine=(FOLDER / name / "docker.json").exists())


def as_json(facts: HostFacts) -> dict[str, Any]:
    """Without the times, which differ from run to run."""
    found = facts.to_json()
    for item in found["evidence"]:
        del item["ms"]
    return found


def test_each_machine_has_its_conclusion() -> None:
    assert sorted(CONCLUSIONS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_facts_are_as_expected(name: str, rewrite: bool) -> None:
    found = json.loads(json.dumps(as_json(look(name))))
    path = FOLDER / name / "expected" / "facts.json"
    if rewrite:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(path.read_text())


@pytest.mark.parametrize("name", NAMES)
def test_conclusion(name: str) -> None:
    state, types, reason = CONCLUSIONS[name]
    gpus = look(name).gpus
    assert gpus.state == state, gpus.detail
    assert [device.slurm_type for device in gpus.devices] == types
    assert reason in (gpus.detail or "")
    assert [device.index for device in gpus.devices] == list(range(len(types)))
    assert gpus.state == "present" or gpus.detail, "why there is none must be said"


@pytest.mark.parametrize("name", ENGINES)
def test_engine(name: str) -> None:
    engine = look(name).engine
    compose = engine.compose.version if engine.compose else None
    assert (engine.state, engine.kind, engine.rootless, compose) == ENGINES[name]


@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str) -> None:
    facts = look(name)
    cpu, memory = facts.cpu, facts.memory
    seen = (cpu.usable, cpu.limited_by, memory.limit_mib, memory.limited_by)
    assert seen == LIMITS[name]


def test_only_surely_nothing_is_zero_gpus() -> None:
    """Each machine with an NVIDIA or AMD card that nobody has taken away says so."""
    for name in NAMES:
        tree = RecordedMachine(FOLDER / name).tree
        cards = [
            path
            for path, text in tree.texts.items()
            if path.endswith("/vendor") and text.strip() in ("0x10de", "0x1002")
        ]
        if cards and look(name).gpus.state == "absent":
            assert name in ("workstation-rtx4090-vfio", "container-none-handed-over")


def test_a_lost_card_does_not_hide_the_others() -> None:
    devices = look("h100x8-one-lost").gpus.devices
    assert [device.index for device in devices if device.problems] == [3]
    assert devices[3].problems == ("DSH-NV-020",)
    assert devices[3].pci_bus_id == "0000:66:00.0", "the only card that NVML does not name"


def test_mig_instances_have_the_card_and_both_capabilities() -> None:
    card, whole = look("h100-mig").gpus.devices
    assert [item.profile for item in card.mig] == ["3g.40gb", "1g.10gb", "1g.10gb.me"]
    assert card.mig[1].device_files == (
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap84",
        "/dev/nvidia-caps/nvidia-cap85",
    )
    assert (whole.mig_mode, whole.mig, whole.problems) == ("disabled", (), ())


def test_an_instance_whose_capability_is_not_known_has_no_files() -> None:
    card = look("h100-mig-minors-table").gpus.devices[0]
    assert [bool(item.device_files) for item in card.mig] == [True, True, False]
    assert card.mig[1].profile == "1g.10gb", "of the slices, since there was no name"


def test_partitions_name_their_card_and_share_no_uuid() -> None:
    devices = look("mi300x-cpx").gpus.devices
    assert [device.partition_of for device in devices] == ["0000:05:00.0"] * 8 + [None]
    assert [device.uuid for device in devices[:8]] == [None] * 8
    assert devices[8].uuid == f"GPU-{9876543210123456789:016x}"
    files = [device.device_files for device in devices]
    assert files == [(f"/dev/dri/renderD{128 + number}",) for number in range(9)]


def test_an_unrecorded_command_is_no_fact() -> None:
    machine = RecordedMachine(FOLDER / "vm-no-gpu")
    with pytest.raises(Unrecorded, match="uname"):
        machine.run(["uname", "-r"], deadline_s=1)
    assert not issubclass(Unrecorded, Exception)
