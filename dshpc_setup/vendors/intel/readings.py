"""Intel's readings: what i915 and xe tell in sysfs."""

from __future__ import annotations

import time
from collections.abc import Mapping

from dshpc_setup.facts import GpuDevice
from dshpc_setup.probes import pci
from dshpc_setup.probes.readings import sensors
from dshpc_setup.probes.readings.values import Answer, Reading
from dshpc_setup.probes.trace import Trace

_ENERGY_S = 0.1  # Intel tells the energy used so far: two looks at it make a power


def ask(look: Trace, devices: tuple[GpuDevice, ...], deadline_s: float) -> Answer:
    """By device index; i915 and xe tell temperature, energy and limit, and those not of every card."""
    folders = {
        device.index: folder
        for device in devices
        if device.pci_bus_id
        for folder in sensors.folders(look, f"{pci.ROOT}/{device.pci_bus_id}")
    }
    powers = _powers(look, folders, min(_ENERGY_S, deadline_s / 2))
    found = {}
    for index, folder in folders.items():
        limit = sensors.first(look, folder, ("power1_max", "power2_max"))
        reading = Reading(
            temperature_c=sensors.degrees(
                sensors.first(look, folder, ("temp1_input", "temp2_input"))
            ),
            power_w=powers.get(index),
            power_limit_w=sensors.watts(limit) if limit else None,  # 0: switched off
        ).plausible()
        if reading != Reading():
            found[index] = reading
    if found:
        look.saw("intel-readings", "present", pci.ROOT)
        return "present", found
    look.saw("intel-readings", "absent", pci.ROOT, "the driver tells no values there")
    return "absent", found


def _powers(look: Trace, folders: Mapping[int, str], pause_s: float) -> dict[int, float]:
    files = ("energy1_input", "energy2_input")
    before = {
        index: (energy, look.machine.clock())
        for index, folder in folders.items()
        if (energy := sensors.first(look, folder, files)) is not None
    }
    if not before:
        return {}
    time.sleep(pause_s)
    found = {}
    for index, (energy, at) in before.items():
        now = sensors.first(look, folders[index], files)
        passed_s = look.machine.clock() - at
        if now is not None and now > energy and passed_s > 0:
            found[index] = round((now - energy) / 1e6 / passed_s, 1)
    return found
