"""pyrsmi, AMD's management library for Python, asked in a process of its own.

Only for what the kernel's own tree does not say (product names, and readings where it has none): pyrsmi
looks for its library under $ROCM_PATH alone, and what it calls a unique id is a bus address. What it cannot
read is -1 (pyrsmi 1.1, rocml.py); it reads no temperature. The value of a `present` reply:

    {"devices": [{"index": 0, "name": "AMD Instinct MI300X", "pci_bus_id": "0000:05:00.0",
                  "memory_bytes": 206141652992, "memory_used_bytes": 297795584,
                  "utilization_percent": 0, "power_w": 141.0, "errors": {}}]}
"""

from __future__ import annotations

from dshpc_setup.machine import Machine, Reply, library

LIBRARY = "libamd_smi.so"


def ask(machine: Machine, deadline_s: float) -> Reply:
    """What pyrsmi says; a hang, a crash or a missing library is the reply's state."""
    if not installed(machine):
        return Reply("absent", None, LIBRARY, f"there is no {LIBRARY} in {root(machine)}")
    from dshpc_setup.machine import amdsmi_library

    folder = root(machine)
    return library.ask(
        lambda say: amdsmi_library.facts(folder, say), LIBRARY, deadline_s=deadline_s
    )


def root(machine: Machine) -> str:
    """Where ROCm is installed, by pyrsmi's own rule."""
    return machine.env.get("ROCM_PATH") or "/opt/rocm"


def installed(machine: Machine) -> bool:
    """Whether there is a library to ask: without one, no process is worth its start."""
    return any(machine.exists(f"{root(machine)}/{sub}/{LIBRARY}") for sub in ("lib", "lib64"))
