"""AMD's readings: what amdgpu tells in sysfs, else its management library, and rocm-smi for the rest."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.facts import GpuDevice
from dshpc_setup.machine import library
from dshpc_setup.probes import pci
from dshpc_setup.probes.amd import rocm_smi, tool_json
from dshpc_setup.probes.readings import sensors
from dshpc_setup.probes.readings.values import Answer, Reading
from dshpc_setup.probes.trace import Trace, kept


def ask(look: Trace, devices: tuple[GpuDevice, ...], deadline_s: float) -> Answer:
    """By device index, from amdgpu's own files, else by rocm-smi."""
    found = {}
    partitions = Counter(device.pci_bus_id for device in devices)
    for device in devices:
        if device.pci_bus_id is None:
            continue
        reading = _amd_card(look, f"{pci.ROOT}/{device.pci_bus_id}")
        if device.partition_of or partitions[device.pci_bus_id] > 1:
            reading = of_partition(reading)
        if reading != Reading():
            found[device.index] = reading
    if found:
        look.saw("amdgpu-readings", "present", pci.ROOT)
        return "present", found
    look.saw("amdgpu-readings", "absent", pci.ROOT, "the driver tells no values there")
    until = look.machine.clock() + deadline_s
    found = _by_library(look, devices, deadline_s)
    if any(each.temperature_c is None for each in found.values()) or len(found) < len(devices):
        left_s = max(0.1, until - look.machine.clock())
        state, more = _by_rocm_smi(look, devices, left_s)
        if not found:
            return state, more
        found = {key: _filled(value, more.get(key)) for key, value in {**more, **found}.items()}
    return "present", found


def _filled(reading: Reading, other: Reading | None) -> Reading:
    """With what the other has and this has not."""
    gaps = [name for name, value in vars(reading).items() if value is None]
    filled: dict[str, Any] = {name: getattr(other, name, None) for name in gaps}
    return replace(reading, **filled)


def of_partition(card: Reading) -> Reading:
    """What a card's values say of a partition of it: it is as hot; the rest is the card's alone."""
    return Reading(temperature_c=card.temperature_c)


def _amd_card(look: Trace, folder: str) -> Reading:
    used = look.number(f"{folder}/mem_info_vram_used")
    total = look.number(f"{folder}/mem_info_vram_total")
    values = [_amd_sensors(look, each) for each in sensors.folders(look, folder)]
    best = max(values, key=lambda each: each != Reading(), default=Reading())
    return Reading(
        memory_used_mib=sensors.mib(used),
        memory_total_mib=sensors.mib(total),
        utilization_percent=look.number(f"{folder}/gpu_busy_percent"),
        temperature_c=best.temperature_c,
        power_w=best.power_w,
        power_limit_w=best.power_limit_w,
        sm_clock_mhz=best.sm_clock_mhz,
        memory_clock_mhz=best.memory_clock_mhz,
    ).plausible()


def _amd_sensors(look: Trace, folder: str) -> Reading:
    # 1 is the edge, 2 the junction; MI300 has no edge
    heat = sensors.first(look, folder, ("temp1_input", "temp2_input"))
    power = sensors.first(look, folder, ("power1_average", "power1_input"))
    cap = look.number(f"{folder}/power1_cap")
    clocks = [look.number(f"{folder}/{name}") for name in ("freq1_input", "freq2_input")]  # Hz
    shader, memory = (None if clock is None else clock // 1_000_000 for clock in clocks)
    return Reading(
        temperature_c=sensors.degrees(heat),
        power_w=sensors.watts(power),
        power_limit_w=sensors.watts(cap),
        sm_clock_mhz=shader,
        memory_clock_mhz=memory,
    )


def _by_library(
    look: Trace, devices: tuple[GpuDevice, ...], deadline_s: float
) -> dict[int, Reading]:
    """By pyrsmi, where its library is installed: memory, use and power; it reads no temperature."""
    reply = look.machine.amdsmi(deadline_s)
    if reply.state == "absent":
        return {}
    look.saw("amdsmi", reply.state, reply.source, reply.detail)
    cards = {
        address: _library_card(item)
        for item in library.devices(reply.value)
        if (address := pci.parse_address(item.get("pci_bus_id")))
    }
    found = _of_devices(devices, cards)
    return {index: reading for index, reading in found.items() if reading != Reading()}


def _of_devices(devices: tuple[GpuDevice, ...], cards: Mapping[str, Reading]) -> dict[int, Reading]:
    """By device index, of the cards' readings by their addresses."""
    return {
        device.index: of_partition(cards[device.pci_bus_id])
        if device.partition_of
        else cards[device.pci_bus_id]
        for device in devices
        if device.pci_bus_id is not None and device.pci_bus_id in cards
    }


def _library_card(item: Mapping[str, Any]) -> Reading:
    use, power = _measured(item, "utilization_percent"), _measured(item, "power_w")
    used, total = (_measured(item, key) for key in ("memory_used_bytes", "memory_bytes"))
    return Reading(
        memory_used_mib=sensors.mib(None if used is None else int(used)),
        memory_total_mib=sensors.mib(None if total is None else int(total)),
        utilization_percent=None if use is None else int(use),
        power_w=power,
    ).plausible()


def _measured(item: Mapping[str, Any], key: str) -> float | None:
    """A finite number that is none of pyrsmi's -1."""
    value = item.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _by_rocm_smi(look: Trace, devices: tuple[GpuDevice, ...], deadline_s: float) -> Answer:
    program = look.machine.which("rocm-smi")
    if program is None:
        return "absent", {}
    result = look.machine.run([program, *rocm_smi.READING_ARGUMENTS], deadline_s=deadline_s)
    if result.state == "timeout":
        look.saw("rocm-smi", "timeout", program, "no answer before its deadline")
        return "timeout", {}
    cards = parse_rocm_smi(result.stdout) if result.ok else None
    if cards is None:
        look.saw("rocm-smi", "error", program, kept(result.text) or "it printed nothing")
        return "error", {}
    look.saw("rocm-smi", "present", program)
    return "present", _of_devices(devices, cards)


def parse_rocm_smi(text: str) -> dict[str, Reading] | None:
    """PCI address -> values, of `rocm-smi --json`; None for what is none of its answers."""
    cards = [
        card
        for record in tool_json.records(tool_json.pieces(text).values)
        for key, card in record.items()
        if re.fullmatch(r"(?i)card ?[0-9]{1,4}", str(key)) and isinstance(card, dict)
    ]
    found = {pci.parse_address(card.get("PCI Bus")): _rocm_card(card) for card in cards}
    return {key: each for key, each in found.items() if key} if cards else None


def _rocm_card(card: Mapping[str, Any]) -> Reading:
    heat = _said(card, "Temperature (Sensor edge) (C)", "Temperature (Sensor junction) (C)")
    power = _said(
        card, "Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)"
    )
    use = _said(card, "GPU use (%)")
    used, total = (_said(card, f"VRAM Total {word}(B)") for word in ("Used Memory ", "Memory "))
    return Reading(
        memory_used_mib=sensors.mib(None if used is None else int(used)),
        memory_total_mib=sensors.mib(None if total is None else int(total)),
        utilization_percent=None if use is None else int(use),
        temperature_c=None if heat is None else round(heat),
        power_w=power,
        power_limit_w=_said(card, "Max Graphics Package Power (W)"),
    ).plausible()


def _said(card: Mapping[str, Any], *keys: str) -> float | None:
    """The first of the keys that holds a number ("N/A" is none)."""
    for key in keys:
        text = str(card.get(key, "")).strip()
        if re.fullmatch(r"-?[0-9]{1,18}(?:\.[0-9]{1,9})?", text):
            return float(text)
    return None
