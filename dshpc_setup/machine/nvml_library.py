"""What NVML is asked: runs in a process of its own, since NVML may hang or crash."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from dshpc_setup.facts import State
from dshpc_setup.machine import Say, library

_STATES: dict[int, State] = {4: "denied", 12: "absent"}  # no permission; no library

_INVALID_ARGUMENT, _NOT_SUPPORTED, _FUNCTION_NOT_FOUND = 2, 3, 13
_MOST_LINKS = 36
_LINKED_TO = {0: "gpu", 1: "cpu", 2: "switch"}


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
        say({"device": device(nvml, index, _fill)})


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


Found = dict[str, Any]
Errors = dict[str, int]


def device(
    nvml: Any, index: int, fill: Callable[[Any, Any, Found, Errors], None]
) -> dict[str, Any]:
    """What identifies a card, and what `fill(nvml, handle, found, errors)` adds to it."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "error": int(error.value), "text": str(error)}
    found: Found = {"index": index}
    errors: Errors = {}
    put(nvml, found, errors, "uuid", lambda: nvml.nvmlDeviceGetUUID(handle))
    put(nvml, found, errors, "pci_bus_id", lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
    fill(nvml, handle, found, errors)
    return {**found, "errors": errors}


def _fill(nvml: Any, handle: Any, found: Found, errors: Errors) -> None:
    def ask(key: str, question: Callable[[], Any]) -> None:
        put(nvml, found, errors, key, question)

    ask("name", lambda: nvml.nvmlDeviceGetName(handle))
    ask("memory_bytes", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
    ask("minor", lambda: int(nvml.nvmlDeviceGetMinorNumber(handle)))
    ask("compute", lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)))
    ask("numa_node", lambda: int(nvml.nvmlDeviceGetNumaNodeId(handle)))
    ask("cpus", lambda: _cpus(nvml, handle))
    ask("mig_mode", lambda: int(nvml.nvmlDeviceGetMigMode(handle)[0]))
    if found.get("mig_mode") == 1:
        ask("mig", lambda: _instances(nvml, handle))
    if "mig_mode" in found:
        ask("mig_pending", lambda: int(nvml.nvmlDeviceGetMigMode(handle)[1]))
    ask("persistence", lambda: int(nvml.nvmlDeviceGetPersistenceMode(handle)))
    ask("compute_mode", lambda: int(nvml.nvmlDeviceGetComputeMode(handle)))
    ask("ecc", lambda: int(nvml.nvmlDeviceGetEccMode(handle)[0]))
    ask("virtualization", lambda: int(nvml.nvmlDeviceGetVirtualizationMode(handle)))
    ask("fabric", lambda: _fabric(nvml, handle))
    ask("nvlinks", lambda: _links(nvml, handle))
    ask("recovery_action", lambda: _recovery_action(nvml, handle))
    if found.get("ecc") == 1:
        ask("retired_pending", lambda: int(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)))
        ask("remapped", lambda: _remapped(nvml, handle))
        _put_ecc(nvml, handle, found, errors)


def _instances(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    return [{"index": number, **_instance(nvml, part)} for number, part in parts(nvml, handle)]


def parts(nvml: Any, handle: Any) -> Iterator[tuple[int, Any]]:
    """The MIG devices of a card that has them, with their numbers."""
    for number in range(int(nvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        # The slots in use need not be the first ones.
        with contextlib.suppress(nvml.NVMLError):
            yield number, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)


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


def _remapped(nvml: Any, handle: Any) -> dict[str, int]:
    _, uncorrectable, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return {"uncorrectable": int(uncorrectable), "pending": int(pending), "failed": int(failed)}


_GPU_GONE = (15, 16)  # lost, or of no use before a reset
_UNCORRECTED = 1
_COUNTERS = {"volatile": 0, "aggregate": 1}
_PLACES = {"dram": 2, "sram": 7}


def _put_ecc(nvml: Any, handle: Any, found: Found, errors: Errors) -> None:
    """Uncorrected errors since the driver's start and of the card's life, as far as it tells them.

    Cards before Ampere do not tell where, and have the sum of all places as that of their memory.
    """
    counts: dict[str, Any] = {}
    codes: Errors = {}
    for when, counter in _COUNTERS.items():
        for where, place in _PLACES.items():
            put(
                nvml, counts, codes, f"{when}_{where}",
                lambda counter=counter, place=place: int(  # type: ignore[misc]
                    nvml.nvmlDeviceGetMemoryErrorCounter(handle, _UNCORRECTED, counter, place)
                ),
            )  # fmt: skip
        if not any(f"{when}_{where}" in counts for where in _PLACES):
            put(
                nvml, counts, codes, f"{when}_dram",
                lambda counter=counter: int(  # type: ignore[misc]
                    nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, counter)
                ),
            )  # fmt: skip
    put(nvml, counts, codes, "sram_threshold", lambda: _sram_threshold(nvml, handle))
    if counts:
        found["ecc_errors"] = counts
    grave = [code for code in codes.values() if code in _GPU_GONE]
    if grave or (codes and not counts):
        errors["ecc_errors"] = grave[0] if grave else next(iter(codes.values()))


def _sram_threshold(nvml: Any, handle: Any) -> int:
    import ctypes

    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return int(status.bThresholdExceeded)


# Not found, a version that it does not know, an argument that it takes for wrong
_OLDER = (_FUNCTION_NOT_FOUND, 25, _INVALID_ARGUMENT)


def _fabric(nvml: Any, handle: Any) -> dict[str, int]:
    import ctypes

    for name in ("c_nvmlGpuFabricInfo_v3_t", "c_nvmlGpuFabricInfo_v2_t"):
        make = getattr(nvml, name, None)
        if make is None:
            continue
        try:
            found = make()
            nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(found))
        except nvml.NVMLError as error:
            if int(error.value) not in _OLDER:
                raise
            continue
        told = {
            "health_mask": found.healthMask,
            "health_summary": getattr(found, "healthSummary", 0),
        }
        health = {key: int(value) for key, value in told.items() if value}  # 0: not supported
        return {"state": int(found.state) & 0xFF, "status": int(found.status), **health}
    # Older drivers know the call without a version only.
    found = nvml.c_nvmlGpuFabricInfo_t()
    nvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(found))
    return {"state": int(found.state) & 0xFF, "status": int(found.status)}


def _recovery_action(nvml: Any, handle: Any) -> int:
    """Which step the driver wants of the card, 0 for none; older drivers know no such field."""
    (found,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if found.nvmlReturn:
        raise nvml.NVMLError(found.nvmlReturn)
    return int(found.value.uiVal)


def _links(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    """The links that are up; raises where the card answers for none.

    A card says of the first number beyond its links that there is no such one: no more is asked,
    for each question costs a call into the driver.
    """
    links: list[dict[str, Any]] = []
    for number in range(_MOST_LINKS):
        try:
            is_up = nvml.nvmlDeviceGetNvLinkState(handle, number)
        except nvml.NVMLError as error:
            if number == 0 or int(error.value) not in (_INVALID_ARGUMENT, _NOT_SUPPORTED):
                raise
            break
        if is_up:
            links.append({"link": number, **_peer(nvml, handle, number)})
    return links


def _peer(nvml: Any, handle: Any, link: int) -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        if kind := _LINKED_TO.get(int(nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link))):
            found["kind"] = kind
    with contextlib.suppress(nvml.NVMLError, AttributeError):
        pci = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link)
        # A guest is not told where the host's switches are: its driver says 0:0.0, or all ones.
        if pci.bus | pci.device and pci.bus < 0xFF:
            found["peer"] = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
    return found


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
