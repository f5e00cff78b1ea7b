"""NVIDIA's readings: by NVML, else by nvidia-smi."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshpc_setup.facts import GpuDevice
from dshpc_setup.machine import Machine, library, nvml
from dshpc_setup.machine.nvml import LIBRARY
from dshpc_setup.probes import pci
from dshpc_setup.probes.readings.values import Answer, PartReading, Reading, Watch
from dshpc_setup.probes.trace import Trace


def ask(look: Trace, devices: tuple[GpuDevice, ...], deadline_s: float) -> Answer:
    started = look.machine.clock()
    reply = look.machine.nvml_readings(deadline_s)
    source = reply.source or LIBRARY
    look.saw("nvml-readings", reply.state, source, reply.detail, reply.code)
    if reply.state not in ("present", "timeout") and reply.code in (None, 12, 13):
        from dshpc_setup.probes.nvidia import smi_readings as nvidia_tool

        reply = nvidia_tool.ask(look, started + deadline_s) or reply
    return reply.state, of_devices(devices, reply.value)


def watch(machine: Machine, devices: tuple[GpuDevice, ...]) -> Watch:
    """The same again and again, by a process that keeps NVML open: of what changes most."""
    kept = nvml.resident(machine)

    def now(deadline_s: float) -> Mapping[int, Reading]:
        return of_devices(devices, kept.ask(deadline_s).value)

    return Watch(now, kept.close)


def of_devices(devices: tuple[GpuDevice, ...], value: object) -> dict[int, Reading]:
    """Device index -> reading, of a value as machine/nvml.py's ask_readings has it.

    Which one is whose is told by UUID, else by PCI address; by number only where nothing else is.
    """
    said = library.devices(value)
    found: dict[int, Reading] = {}
    for device in devices:
        item = next((item for item in said if _is_of(device, item)), None)
        if item is not None and "error" not in item:
            found[device.index] = parse(item).parted(tuple(part.uuid for part in device.mig))
    return found


def _is_of(device: GpuDevice, item: Mapping[str, Any]) -> bool:
    if device.uuid and isinstance(item.get("uuid"), str):
        return bool(device.uuid == item["uuid"])
    address = pci.parse_address(item.get("pci_bus_id"))
    if device.pci_bus_id and address:
        return device.pci_bus_id == address
    return _whole(item.get("index")) == device.index


def parse(item: Mapping[str, Any]) -> Reading:
    """One device's values; what is no number, or none that can be, is not known."""
    parts = item.get("mig")
    return Reading(
        memory_used_mib=_mib(item.get("memory_used_bytes")),
        memory_total_mib=_mib(item.get("memory_total_bytes")),
        utilization_percent=_whole(item.get("utilization")),
        temperature_c=_whole(item.get("temperature_c")),
        power_w=_watts(item.get("power_mw")),
        power_limit_w=_watts(item.get("power_limit_mw")),
        sm_clock_mhz=_count(item.get("sm_clock_mhz")),
        memory_clock_mhz=_count(item.get("memory_clock_mhz")),
        energy_mj=_count(item.get("energy_mj")),
        ecc_corrected=_count(item.get("ecc_corrected")),
        ecc_uncorrected=_count(item.get("ecc_uncorrected")),
        mig=tuple(
            PartReading(
                part["uuid"] if isinstance(part.get("uuid"), str) else None,
                _mib(part.get("memory_used_bytes")),
                _mib(part.get("memory_total_bytes")),
            )
            for part in (parts if isinstance(parts, list) else ())
            if isinstance(part, dict)
        ),
    ).plausible()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _count(value: object) -> int | None:
    number = _whole(value)
    return number if number is not None and 0 <= number < 1 << 63 else None


def _mib(value: object) -> int | None:
    number = _whole(value)
    return number >> 20 if number is not None and 0 <= number < 1 << 60 else None


def _watts(value: object) -> float | None:
    number = _whole(value)
    return None if number is None or not 0 <= number < 1 << 40 else round(number / 1000, 1)
