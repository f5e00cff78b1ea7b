"""NVML, NVIDIA's management library, asked in a child process (`nvml_child.py`).

The value of a `present` reply:

    {"driver_version": str, "nvml_version": str, "cuda_version": 12040,
     "devices": [{"index", "name", "uuid", "pci_bus_id", "memory_bytes", "minor", "compute": [9, 0],
                  "numa_node", "cpus": "0-15", "mig_mode": 0|1,
                  "mig": [{"index", "name", "uuid", "memory_bytes", "gi", "ci"}],
                  "errors": {"memory_bytes": 3}}]}

A field that NVML refused is missing there and has its error code in `errors`; a device of which not
even a handle was to be had is `{"index", "error": 15, "text": "GPU is lost"}`.
"""

from __future__ import annotations

from dshpc_setup.machine import Machine, Reply, child

LIBRARY = "libnvidia-ml.so.1"

# Where the library lies when the loader's own list does not know it: WSL2, NixOS.
_EXTRA_FOLDERS = ("/usr/lib/wsl/lib", "/run/opengl-driver/lib")


def ask(machine: Machine, deadline_s: float) -> Reply:
    """What NVML says; a hang, a crash or a missing library is the reply's state."""
    env = {}
    extra = [folder for folder in _EXTRA_FOLDERS if machine.exists(f"{folder}/{LIBRARY}")]
    if extra:
        given = machine.env.get("LD_LIBRARY_PATH")
        env["LD_LIBRARY_PATH"] = ":".join([given, *extra] if given else extra)
    return child.ask(machine, "nvml_child.py", LIBRARY, deadline_s=deadline_s, env=env)
