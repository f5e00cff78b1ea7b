"""What NVML measures: runs in a process of its own, since NVML may hang or crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dshpc_setup.machine import Say
from dshpc_setup.machine.nvml_library import Errors, Found, device, opened, parts, put


def readings(beside: str | None, say: Say) -> None:
    """Say each device's use, temperature and power; see nvml.ask_readings for the value."""
    nvml = opened(beside, say)
    if nvml is None:
        return
    for index in range(int(nvml.nvmlDeviceGetCount())):
        say({"device": device(nvml, index, _fill)})


def stay(beside: str | None, asked: Callable[[], bool], say: Say) -> None:
    """For a process that stays: each time that it is asked, what changes most, and None behind it.

    The first call of most questions takes milliseconds for each card, those after it a tenth of one; the
    counter of energy takes five each time (H100, driver 580.159), and is left out.
    """
    nvml = None
    while asked():
        nvml = nvml or opened(beside, say)
        for index in range(int(nvml.nvmlDeviceGetCount()) if nvml is not None else 0):
            say({"device": device(nvml, index, _fill_often)})
        say(None)


def _fill_often(nvml: Any, handle: Any, found: Found, errors: Errors) -> None:
    def ask(key: str, question: Callable[[], Any]) -> None:
        put(nvml, found, errors, key, question)

    _put_memory(nvml, handle, found, errors)
    ask("utilization", lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
    ask("power_mw", lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)))
    ask("mig", lambda: _instances(nvml, handle))


def _fill(nvml: Any, handle: Any, found: Found, errors: Errors) -> None:
    def ask(key: str, question: Callable[[], Any]) -> None:
        put(nvml, found, errors, key, question)

    _put_memory(nvml, handle, found, errors)
    ask("utilization", lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
    ask("temperature_c", lambda: int(nvml.nvmlDeviceGetTemperature(handle, 0)))
    ask("power_mw", lambda: int(nvml.nvmlDeviceGetPowerUsage(handle)))
    ask("power_limit_mw", lambda: int(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)))
    ask("sm_clock_mhz", lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 1)))
    ask("memory_clock_mhz", lambda: int(nvml.nvmlDeviceGetClockInfo(handle, 2)))
    ask("energy_mj", lambda: int(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)))
    ask("ecc_corrected", lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, 0, 0)))
    ask("ecc_uncorrected", lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0)))
    ask("mig", lambda: _instances(nvml, handle))


def _instances(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    if int(nvml.nvmlDeviceGetMigMode(handle)[0]) != 1:
        return []
    return [_instance(nvml, part) for _, part in parts(nvml, handle)]


def _instance(nvml: Any, part: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    errors: dict[str, int] = {}
    put(nvml, found, errors, "uuid", lambda: nvml.nvmlDeviceGetUUID(part))
    _put_memory(nvml, part, found, errors)
    return {**found, "errors": errors}


def _put_memory(nvml: Any, handle: Any, found: dict[str, Any], errors: dict[str, int]) -> None:
    asked: dict[str, Any] = {}
    put(nvml, asked, errors, "memory_bytes", lambda: _memory(nvml, handle))
    if "memory_bytes" in asked:
        found["memory_used_bytes"], found["memory_total_bytes"] = asked["memory_bytes"]


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Used and total; in the first version of the call, what the driver keeps counts as used."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return int(memory.used), int(memory.total)
