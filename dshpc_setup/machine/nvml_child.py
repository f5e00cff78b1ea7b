"""The process that talks to NVML: run as a file, with the module search path as its arguments.

It imports nothing of the package: what it costs to start is paid at every start of the container.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

_STATES = {4: "denied", 12: "absent"}  # no permission; no library


def main() -> None:
    sys.path[:] = sys.argv[1:]
    # A library may print what it likes: our answers go through a descriptor it does not know.
    answers = os.dup(1)
    os.dup2(2, 1)

    def say(item: dict[str, Any]) -> None:
        os.write(answers, (json.dumps(item) + "\n").encode())

    try:
        import pynvml
    except ImportError as error:
        say({"failure": {"state": "error", "text": f"nvidia-ml-py is not installed: {error}"}})
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        code = int(error.value)
        state = _STATES.get(code, "error")
        say({"failure": {"state": state, "code": code, "text": str(error)}})
        return
    _ask(pynvml, say)
    say({"end": True})


def _ask(nvml: Any, say: Callable[[dict[str, Any]], None]) -> None:
    general: dict[str, Any] = {}
    errors: dict[str, int] = {}
    _put(nvml, general, errors, "driver_version", nvml.nvmlSystemGetDriverVersion)
    _put(nvml, general, errors, "nvml_version", nvml.nvmlSystemGetNVMLVersion)
    _put(nvml, general, errors, "cuda_version", nvml.nvmlSystemGetCudaDriverVersion)
    _put(nvml, general, errors, "count", nvml.nvmlDeviceGetCount)
    say({**general, "errors": errors})
    for index in range(int(general.get("count", 0))):
        say({"device": _device(nvml, index)})


def _device(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "error": int(error.value), "text": str(error)}
    found: dict[str, Any] = {"index": index}
    errors: dict[str, int] = {}

    def put(key: str, ask: Callable[[], Any]) -> None:
        _put(nvml, found, errors, key, ask)

    put("name", lambda: nvml.nvmlDeviceGetName(handle))
    put("uuid", lambda: nvml.nvmlDeviceGetUUID(handle))
    put("pci_bus_id", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
    put("memory_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
    put("minor", lambda: int(nvml.nvmlDeviceGetMinorNumber(handle)))
    put("compute", lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)))
    put("numa_node", lambda: int(nvml.nvmlDeviceGetNumaNodeId(handle)))
    put("cpus", lambda: _cpus(nvml, handle))
    put("mig_mode", lambda: int(nvml.nvmlDeviceGetMigMode(handle)[0]))
    if found.get("mig_mode") == 1:
        put("mig", lambda: _instances(nvml, handle))
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

    def put(key: str, ask: Callable[[], Any]) -> None:
        _put(nvml, found, errors, key, ask)

    put("name", lambda: nvml.nvmlDeviceGetName(part))
    put("uuid", lambda: nvml.nvmlDeviceGetUUID(part))
    put("gi", lambda: int(nvml.nvmlDeviceGetGpuInstanceId(part)))
    put("ci", lambda: int(nvml.nvmlDeviceGetComputeInstanceId(part)))
    put("slices", lambda: _slices(nvml, part))
    put("memory_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(part).total))
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


def _put(
    nvml: Any, found: dict[str, Any], errors: dict[str, int], key: str, ask: Callable[[], Any]
) -> None:
    try:
        value = ask()
    except nvml.NVMLError as error:
        errors[key] = int(error.value)
        return
    except (ValueError, TypeError, AttributeError, OSError):
        errors[key] = -1  # this version of nvidia-ml-py cannot ask for it, or cannot read it
        return
    found[key] = value.decode(errors="replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    main()
