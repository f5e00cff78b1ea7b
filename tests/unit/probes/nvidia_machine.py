"""A small machine with NVIDIA's layers, from the few files that a test is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dshpc_setup.facts import Gpus
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.probes.nvidia import probe as nvidia
from dshpc_setup.probes.trace import Found

MACHINES = Path(__file__).parents[2] / "machines"
UUID = "GPU-11111111-2222-3333-4444-55555555555"  # and one digit


def card(address: str, driver: str | None = "nvidia") -> str:
    """The entries of a card on the PCI bus, for root.txtar."""
    folder = f"sys/bus/pci/devices/{address}"
    text = f"-- {folder}/vendor --\n0x10de\n-- {folder}/class --\n0x030200\n"
    return text + (f"-- {folder}/driver -> ../../drivers/{driver} --\n" if driver else "")


def gpu(index: int, **fields: Any) -> dict[str, Any]:
    """A GPU as NVML tells of it."""
    return {
        "index": index,
        "name": "NVIDIA A10",
        "uuid": f"{UUID}{index}",
        "pci_bus_id": f"00000000:0{index + 1}:00.0",
        "minor": index,
        "memory_bytes": 24 << 30,
        "errors": {},
        **fields,
    }


def host(count: int) -> str:
    """The layers below NVML of a host with so many cards, all well."""
    cards = "".join(card(f"0000:0{number + 1}:00.0") for number in range(count))
    nodes = "".join(f"-- dev/nvidia{number} device --\n" for number in range(count))
    return f"{cards}-- sys/module/nvidia/version --\n550.54.15\n{nodes}-- dev/nvidiactl device --\n"


def machine(
    folder: Path,
    root: str,
    *,
    nvml: dict[str, Any] | None = None,
    commands: list[dict[str, Any]] | None = None,
    release: str = "6.8.0",
    arch: str = "x86_64",
    env: dict[str, str] | None = None,
) -> RecordedMachine:
    about = {"format": 1, "system": "Linux", "release": release, "machine": arch, "env": env or {}}
    (folder / "machine.yaml").write_text(json.dumps(about))
    (folder / "root.txtar").write_text(root)
    if nvml is not None:
        (folder / "nvml.json").write_text(json.dumps(nvml))
    if commands is not None:
        (folder / "commands.yaml").write_text(json.dumps(commands))
    return RecordedMachine(folder)


def present(*devices: dict[str, Any], **general: Any) -> dict[str, Any]:
    """A reply of NVML's that lists these."""
    value = {"driver_version": "550.54.15", "cuda_version": 12040, **general}
    return {"state": "present", "value": {**value, "devices": list(devices)}}


def probed(name: str) -> Found[Gpus]:
    """What the probe finds on one of the recorded machines."""
    return nvidia.probe(RecordedMachine(MACHINES / name), 10.0)


def gpus(name: str) -> Gpus:
    return probed(name).fact
