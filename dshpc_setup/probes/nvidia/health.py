"""What NVML tells of a card's own faults, as facts. Pure.

Sources: nvml.h (nvmlGpuFabricInfo_v3_t and its health mask, nvmlDeviceGetRemappedRows,
nvmlEccSramErrorStatus_v1_t); NVIDIA GPU Memory Error Management (row remapping, SRAM threshold).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.facts import FabricFault, GpuHealth
from dshpc_setup.probes.nvidia.values import count, switch
from dshpc_setup.problems import BROKEN, FABRIC_UNHEALTHY

_TRUE = 1
_JOINED = 3  # nvmlGpuFabricState_t: the Fabric Manager has come round to it
# Where a field of the mask begins; each is NVML's NOT_SUPPORTED, TRUE or FALSE in two bits
_FIELDS: tuple[tuple[int, FabricFault], ...] = (
    (0, "degraded-bandwidth"), (2, "route-recovery"), (4, "route-unhealthy"), (6, "access-timeout"),
)  # fmt: skip
_CONFIGURATION, _CONFIGURED = 8, (0, 1)  # four bits: not supported, none; else what is wrong
_SUMMARY: dict[int, FabricFault] = {2: "unhealthy", 3: "limited-capacity"}
_UNUSABLE: frozenset[FabricFault] = frozenset(
    ("unhealthy", "route-unhealthy", "incorrect-configuration")
)


def of(item: Mapping[str, Any]) -> GpuHealth | None:
    """The health of one device of NVML's answer; None where it tells nothing of it."""
    ecc, rows = _object(item.get("ecc_errors")), _object(item.get("remapped"))
    pending = count(item.get("mig_pending"))
    found = GpuHealth(
        volatile_dram=count(ecc.get("volatile_dram")),
        volatile_sram=count(ecc.get("volatile_sram")),
        aggregate_dram=count(ecc.get("aggregate_dram")),
        aggregate_sram=count(ecc.get("aggregate_sram")),
        sram_over_threshold=switch(ecc.get("sram_threshold")),
        remap_pending=switch(rows.get("pending")),
        remap_failed=switch(rows.get("failed")),
        retirement_pending=switch(item.get("retired_pending")),
        fabric=_fabric(_object(item.get("fabric"))),
    )
    if pending in (0, 1) and pending != count(item.get("mig_mode")):
        found = replace(found, mig_pending="enabled" if pending else "disabled")
    return None if found == GpuHealth() else found


def problems(health: GpuHealth | None, *, fabric: bool) -> tuple[str, ...]:
    """The findings of a card that its own firmware calls broken. `fabric`: others hang on its NVLinks."""
    if health is None:
        return ()
    broken = bool(health.remap_failed or health.sram_over_threshold)
    cut_off = fabric and bool(_UNUSABLE & set(health.fabric))
    return (*((BROKEN,) if broken else ()), *((FABRIC_UNHEALTHY,) if cut_off else ()))


def _fabric(value: Mapping[str, Any]) -> tuple[FabricFault, ...]:
    if count(value.get("state")) not in (None, _JOINED):
        return ()  # it has no part of a fabric, or not yet: its health is that of nothing
    mask, summary = count(value.get("health_mask")) or 0, count(value.get("health_summary"))
    found = [fault for shift, fault in _FIELDS if mask >> shift & 3 == _TRUE]
    if mask >> _CONFIGURATION & 0xF not in _CONFIGURED:
        found.append("incorrect-configuration")
    told = _SUMMARY.get(summary) if summary is not None else None
    return (*((told,) if told else ()), *found)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
