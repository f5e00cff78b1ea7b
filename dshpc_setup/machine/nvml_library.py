"""What NVML is asked: runs in a process of its own, since NVML may hang or crash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any

from dshpc_setup.facts import State
from dshpc_setup.machine import Say, library

_STATES: dict[int, State] = {4: "denied", 12: "absent"}  # no permission; no library


def facts(beside: str | None, say: Say) -> None:
    """Say the machine and each device; `beside`: a library that the loader may not know of."""
    nvml = opened(beside, say)
    if nvml is None:
        return
    general: dict[str, Any] = {}
    errors: dict[str, int] = {}
    put(nvml, general, errors, "driver_version", nvml.nvmlSystemGetDriverVersion)
    put(nvml, general, errors, "nvml_version", nvml.nvmlSystemGetNVMLVersion)
    put(nvml, general, errors, "cuda_version", nvml.nvmlSystemGetCudaDriverVersion)
    put(nvml, general, errors, "count", nvml.nvmlDeviceGetCount)
    say({**general, "errors": errors})
    for index in range(int(general.get("count", 0))):
        say({"device": _device(nvml, index)})


def opened(beside: str | None, say: Say) -> Any:
    """nvidia-ml-py's module with NVML initialised; None once the failure has been said."""
    try:
        import pynvml
    except ImportError as error:
        say({"failure": {"state": "error", "text": f"nvidia-ml-py is not installed: {error}"}})
        return None
    try:
        _initialise(pynvml, beside)
    except pynvml.NVMLError as error:
        code = int(error.value)
        state = _STATES.get(code, "error")
        say({"failure": {"state": state, "code": code, "text": str(error)}})
        return None
    return pynvml


def _initialise(pynvml: Any, beside: str | None) -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if int(error.value) != 12 or beside is None:
            raise
        import ctypes

        # nvidia-ml-py loads by name alone; a library that it finds in place it takes as loaded.
        with contextlib.suppress(OSError):
            pynvml.nvmlLib = ctypes.CDLL(beside)
        pynvml.nvmlInit()


def _device(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "error": int(error.value), "text": str(error)}
    found: dict[str, Any] = {"index": index}
    errors: dict[str, int] = {}

    def ask(key: str, question: Callable[[], Any]) -> None:
        put(nvml, found, errors, key, question)

    ask("name", lambda: nvml.nvmlDeviceGetName(handle))
    ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle))
    ask("pci_bus_id", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
    ask("memory_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
    ask("minor", lambda: int(nvml.nvmlDeviceGetMinorNumber(handle)))
    ask("compute", lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)))
    ask("numa_node", lambda: int(nvml.nvmlDeviceGetNumaNodeId(handle)))
    ask("cpus", lambda: _cpus(nvml, handle))
    ask("mig_mode", lambda: int(nvml.nvmlDeviceGetMigMode(handle)[0]))
    if found.get("mig_mode") == 1:
        ask("mig", lambda: _instances(nvml, handle))
    found["errors"] = errors
    return found


def _instances(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    instances = []
    for number in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except nvml.NVMLError:
            continue  # the slots in use need not be the first ones
        instances.append({"index": number, **_instance(nvml, part)})
    return instances


def _instance(nvml: Any, part: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    errors: dict[str, int] = {}

    def ask(key: str, question: Callable[[], Any]) -> None:
        put(nvml, found, errors, key, question)

    ask("name", lambda: nvml.nvmlDeviceGetName(part))
    ask("uuid", lambda: nvml.nvmlDeviceGetUUID(part))
    ask("gi", lambda: int(nvml.nvmlDeviceGetGpuInstanceId(part)))
    ask("ci", lambda: int(nvml.nvmlDeviceGetComputeInstanceId(part)))
    ask("slices", lambda: _slices(nvml, part))
    ask("memory_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(part).total))
    return {**found, "errors": errors}


def _slices(nvml: Any, part: Any) -> list[int]:
    """GPU slices, compute slices and memory in MiB: what the profile's name is made of."""
    found = nvml.nvmlDeviceGetAttributes(part)
    return [
        int(found.gpuInstanceSliceCount),
        int(found.computeInstanceSliceCount),
        int(found.memorySizeMB),
    ]


def _cpus(nvml: Any, handle: Any) -> str:
    words = nvml.nvmlDeviceGetCpuAffinity(handle, 1 + (os.cpu_count() or 1) // 64)
    numbers = [
        word * 64 + bit for word, mask in enumerate(words) for bit in range(64) if mask >> bit & 1
    ]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def put(
    nvml: Any, found: dict[str, Any], errors: dict[str, int], key: str, ask: Callable[[], Any]
) -> None:
    """One field: its value, or NVML's error code; -1 where nvidia-ml-py itself cannot ask or read."""

    def code_of(error: Exception) -> int:
        return int(error.value) if isinstance(error, nvml.NVMLError) else -1

    library.put(found, errors, key, ask, code_of)
