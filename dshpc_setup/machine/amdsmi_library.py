"""What AMD's library is asked by pyrsmi: runs in a process of its own, as NVML does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from dshpc_setup.machine import Say, library


def facts(root: str, say: Say) -> None:
    """Say each device; `root`: where ROCm is installed."""
    os.environ["ROCM_PATH"] = root  # this process is ours alone
    try:
        from pyrsmi import rocml
    except ImportError as error:
        say({"failure": {"state": "error", "text": f"pyrsmi is not installed: {error}"}})
        return
    try:
        rocml.smi_initialize()
        count = int(rocml.smi_get_device_count())
    except Exception as error:  # noqa: BLE001  (pyrsmi raises what it likes; this is a boundary)
        missing = "NotFound" in type(error).__name__
        state = "absent" if missing else "error"
        say({"failure": {"state": state, "text": f"{type(error).__name__}: {error}"}})
        return
    for index in range(count):
        say({"device": _device(rocml, index)})


def _device(rocml: Any, index: int) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index}
    errors: dict[str, str] = {}
    questions: dict[str, Callable[[], Any]] = {
        "name": lambda: rocml.smi_get_device_name(index),
        "pci_bus_id": lambda: _address(int(rocml.smi_get_device_pci_id(index))),
        "memory_bytes": lambda: int(rocml.smi_get_device_memory_total(index)),
        "memory_used_bytes": lambda: int(rocml.smi_get_device_memory_used(index)),
        "utilization_percent": lambda: int(rocml.smi_get_device_utilization(index)),
        "power_w": lambda: float(rocml.smi_get_device_average_power(index)),
    }
    for key, ask in questions.items():
        library.put(found, errors, key, ask, lambda error: f"{type(error).__name__}: {error}")
    found["errors"] = errors
    return found


def _address(number: int) -> str:
    """BDFID as the library packs it: domain from bit 32, bus 15-8, device 7-3, function 2-0."""
    domain, bus, device = number >> 32 & 0xFFFF, number >> 8 & 0xFF, number >> 3 & 0x1F
    return f"{domain:04x}:{bus:02x}:{device:02x}.{number & 7}"
