"""What NVML measures: runs in a process of its own, since NVML may hang or crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dshpc_setup.machine import Say
from dshpc_setup.machine.nvml_library import opened, put


def readings(beside: str | None, say: Say) -> None:
    """Say each device's use, temperature and power; see nvml.ask_readings for the value."""
    nvml = opened(beside, say)
    if nvml is None:
        return
    for index in range(int(nvml.nvmlDeviceGetCount())):
        say({"device": _device(nvml, index)})


def _device(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "error": int(error.value), "text": str(error)}
    found: dict[str, Any] = {"index": index}
    errors: dict[str, int] = {}

    def ask(key: str, question: Callable[[], Any]) -> None:
        put(nvml, found, errors, key, question)

    ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle))
    ask("pci_bus_id", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
    ask("memory_used_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used))
    ask("memory_total_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
    ask("utilization", lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
    ask("temperature_c", lambda: int(nvml.nvmlDeviceGetTemperature(handle, 0)))
    ask("power_mw", lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)))
    ask("power_limit_mw", lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)))
    return {**found, "errors": errors}
