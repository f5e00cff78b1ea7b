"""NVML, NVIDIA's management library, asked in a process of its own.

The value of a `present` reply:

    {"driver_version": str, "nvml_version": str, "cuda_version": 12040, "count": 8,
     "devices": [{"index", "name", "uuid", "pci_bus_id", "memory_bytes", "minor", "compute": [9, 0],
                  "numa_node", "cpus": "0-15", "mig_mode": 0|1,
                  "mig": [{"index", "name", "uuid", "memory_bytes", "gi", "ci", "slices"}],
                  "persistence": 0|1, "compute_mode": 0..3, "ecc": 0|1, "virtualization": 0..4,
                  "fabric": {"state": 0..3, "status": nvmlReturn_t, "health_mask": bits,
                             "health_summary": 0..3},
                  "mig_pending": 0|1, "retired_pending": 0|1, "recovery_action": 0..7,
                  "remapped": {"uncorrectable": 2, "pending": 0|1, "failed": 0|1},
                  "ecc_errors": {"volatile_dram": 0, "volatile_sram": 0, "aggregate_dram": 0,
                                 "aggregate_sram": 0, "sram_threshold": 0|1},
                  "nvlinks": [{"link": 0, "peer": "0000:1b:00.0", "kind": "gpu"|"switch"|"cpu"}],
                  "errors": {"memory_bytes": 3}}]}

Of `ecc_errors` (uncorrected ones), `remapped` and `fabric` there is what the driver tells; a health
that it does not support is missing.
Numbers are those of NVML's own enumerations; `nvlinks` are the links that are up, each without `peer`
or `kind` where the driver does not tell; so is the fabric's `status`.

A field that NVML refused is missing there and has its error code in `errors` (-1: nvidia-ml-py cannot
ask for it, 13: the driver cannot); a device of which not even a handle was to be had is
`{"index", "error": 15, "text": "GPU is lost"}`. `nvidia-smi` is read into the same shape: then such a
device may have its "pci_bus_id", and `errors` may name what NVML has no field for ("recovery": 16).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dshpc_setup.machine import Machine, Reply, Say, library

if TYPE_CHECKING:
    from dshpc_setup.machine.resident import Resident

LIBRARY = "libnvidia-ml.so.1"

# Where the library may lie though the loader does not know of it: WSL2, NixOS.
_EXTRA_FOLDERS = ("/usr/lib/wsl/lib", "/run/opengl-driver/lib")


def ask(machine: Machine, deadline_s: float) -> Reply:
    """What NVML says; a hang, a crash or a missing library is the reply's state."""
    from dshpc_setup.machine import nvml_library

    return _ask(machine, nvml_library.facts, deadline_s)


def _ask(machine: Machine, question: Callable[[str | None, Say], None], deadline_s: float) -> Reply:
    beside = _beside(machine)
    return library.ask(lambda say: question(beside, say), LIBRARY, deadline_s=deadline_s)


def _beside(machine: Machine) -> str | None:
    """Where it lies, for a loader that does not know."""
    given = machine.env.get("LD_LIBRARY_PATH", "").split(":")
    paths = (f"{folder}/{LIBRARY}" for folder in (*filter(None, given), *_EXTRA_FOLDERS))
    return next((path for path in paths if machine.exists(path)), None)


def ask_readings(machine: Machine, deadline_s: float) -> Reply:
    """What NVML measures now, device by device; the reply's value:

    {"devices": [{"index", "uuid", "pci_bus_id", "memory_used_bytes", "memory_total_bytes",
                  "utilization": percent, "temperature_c", "power_mw", "power_limit_mw",
                  "sm_clock_mhz", "memory_clock_mhz", "energy_mj" since the driver was loaded,
                  "ecc_corrected", "ecc_uncorrected" since then,
                  "mig": [{"uuid", "memory_used_bytes", "memory_total_bytes"}],
                  "errors": {"power_mw": 3}}]}
    """
    from dshpc_setup.machine import nvml_readings

    return _ask(machine, nvml_readings.readings, deadline_s)


def resident(machine: Machine) -> Resident:
    """One that is asked again and again for use, memory and power, in the shape of `ask_readings`."""
    from dshpc_setup.machine import nvml_readings
    from dshpc_setup.machine.resident import Resident

    beside = _beside(machine)
    return Resident(lambda asked, say: nvml_readings.stay(beside, asked, say), LIBRARY)
