"""What NVIDIA's cards count of their own faults: asked of NVML, read of nvidia-smi, judged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import GpuHealth
from dshpc_setup.machine import nvml_library
from dshpc_setup.probes.nvidia import devices, health, smi_xml
from dshpc_setup.problems import BROKEN, FABRIC_UNHEALTHY, RESET

# Bits of nvml.h: each field is not supported (0), true (1) or false (2); the configuration none (1)
WELL = 0b10101010 | 1 << 8


@pytest.mark.parametrize(
    ("told", "found", "problems"),
    [
        ({}, None, ()),
        ({"ecc_errors": {}, "remapped": {}, "fabric": {"state": 3, "status": 0}}, None, ()),
        ({"remapped": {"pending": 0, "failed": 0}},
         GpuHealth(remap_pending=False, remap_failed=False), ()),
        ({"remapped": {"pending": 1, "failed": 0}},
         GpuHealth(remap_pending=True, remap_failed=False), ()),
        ({"remapped": {"pending": 0, "failed": 1}},
         GpuHealth(remap_pending=False, remap_failed=True), (BROKEN,)),
        ({"ecc_errors": {"volatile_sram": 1, "sram_threshold": 1}},
         GpuHealth(volatile_sram=1, sram_over_threshold=True), (BROKEN,)),
        ({"ecc_errors": {"volatile_dram": 3, "aggregate_dram": 7, "sram_threshold": 0}},
         GpuHealth(volatile_dram=3, aggregate_dram=7, sram_over_threshold=False), ()),
        ({"mig_mode": 0, "mig_pending": 1}, GpuHealth(mig_pending="enabled"), ()),
        ({"mig_mode": 1, "mig_pending": 0}, GpuHealth(mig_pending="disabled"), ()),
        ({"mig_mode": 1, "mig_pending": 1}, None, ()),
        ({"retired_pending": 1}, GpuHealth(retirement_pending=True), ()),
        ({"fabric": {"health_mask": WELL, "health_summary": 1}}, None, ()),
        ({"fabric": {"health_mask": WELL & ~(3 << 4) | 1 << 4}},
         GpuHealth(fabric=("route-unhealthy",)), (FABRIC_UNHEALTHY,)),
        ({"fabric": {"health_mask": WELL, "health_summary": 2}},
         GpuHealth(fabric=("unhealthy",)), (FABRIC_UNHEALTHY,)),
        ({"fabric": {"health_mask": WELL & ~3 | 1, "health_summary": 3}},
         GpuHealth(fabric=("limited-capacity", "degraded-bandwidth")), ()),
        ({"fabric": {"health_mask": 5 << 8}},
         GpuHealth(fabric=("incorrect-configuration",)), (FABRIC_UNHEALTHY,)),
    ],
)  # fmt: skip
def test_what_a_card_tells(
    told: dict[str, Any], found: GpuHealth | None, problems: tuple[str, ...]
) -> None:
    assert health.of(told) == found
    assert health.problems(found, fabric=True) == problems
    assert FABRIC_UNHEALTHY not in health.problems(found, fabric=False), (
        "nothing hangs on its links"
    )


@given(st.dictionaries(
    st.sampled_from(("ecc_errors", "remapped", "fabric", "mig_pending", "retired_pending", "mig_mode")),
    st.none() | st.integers() | st.text() | st.dictionaries(
        st.sampled_from(("pending", "failed", "volatile_dram", "sram_threshold", "health_mask",
                         "health_summary")), st.none() | st.booleans() | st.integers() | st.text()),
))  # fmt: skip
def test_nothing_that_it_says_trips_it(told: dict[str, Any]) -> None:
    found = health.of(told)
    assert set(health.problems(found, fabric=True)) <= {BROKEN, FABRIC_UNHEALTHY}


# -- NVML -----------------------------------------------------------------------------------------


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


def refused(code: int) -> Any:
    def ask(*_: Any) -> Any:
        raise NVMLError(code)

    return ask


def library(**changed: Any) -> Any:
    """As much of nvidia-ml-py as is asked; what is not named is not supported."""
    calls = """nvmlDeviceGetRemappedRows nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetTotalEccErrors
        nvmlDeviceGetSramEccErrorStatus nvmlDeviceGetGpuFabricInfoV nvmlDeviceGetGpuFabricInfo""".split()
    return SimpleNamespace(NVMLError=NVMLError, **{name: refused(3) for name in calls}, **changed)


def ecc(nvml: Any) -> tuple[dict[str, Any], dict[str, int]]:
    found: dict[str, Any] = {}
    errors: dict[str, int] = {}
    nvml_library._put_ecc(nvml, object(), found, errors)
    return found, errors


def test_the_errors_are_asked_by_place_and_time() -> None:
    nvml = library()
    nvml.nvmlDeviceGetMemoryErrorCounter = lambda _, kind, when, where: (
        kind * 1000 + when * 100 + where
    )
    found, errors = ecc(nvml)
    assert found["ecc_errors"] == {
        "volatile_dram": 1002, "volatile_sram": 1007, "aggregate_dram": 1102, "aggregate_sram": 1107,
    }  # fmt: skip
    assert errors == {}


@pytest.mark.parametrize(("code", "action"), [(0, 4), (0, 0), (3, 0)])
def test_the_step_that_the_driver_wants(code: int, action: int) -> None:
    nvml = library(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION=230)
    told = SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=action))
    nvml.nvmlDeviceGetFieldValues = lambda _, fields: [told] if fields == [230] else []
    if code:
        with pytest.raises(NVMLError):
            nvml_library._recovery_action(nvml, object())
    else:
        assert nvml_library._recovery_action(nvml, object()) == action


@pytest.mark.parametrize(("action", "problems"), [
    (0, []), (1, [RESET]), (2, [RESET]), (3, []), (4, []), (5, []), (6, [RESET]), (7, [RESET]), (99, []),
    (None, []), ("1", []), (True, []), (-1, []),
])  # fmt: skip
def test_a_card_that_is_of_no_use_before_a_reset_is_no_jobs(
    action: Any, problems: list[str]
) -> None:
    """One that can go on until it is drained is a job's all the same."""
    item = {"name": "NVIDIA H100", "recovery_action": action, "errors": {}}
    assert list(devices._problems(item, "unsupported", (), fabric=False)) == problems
    refused_too = {**item, "errors": {"memory_bytes": 16}}
    assert list(devices._problems(refused_too, "unsupported", (), fabric=False)) == [RESET]


@pytest.mark.parametrize(
    ("state", "told"), [(0, False), (1, False), (2, False), (3, True), (None, True)]
)
def test_only_a_card_that_was_joined_has_a_part_of_the_fabric(
    state: int | None, told: bool
) -> None:
    item = {"fabric": {"state": state, "health_mask": 1 << 4, "health_summary": 2}}
    assert bool(health.problems(health.of(item), fabric=True)) == told


def test_an_older_card_tells_the_sum_alone() -> None:
    nvml = library()
    nvml.nvmlDeviceGetTotalEccErrors = lambda *asked: 4 + asked[2]
    assert ecc(nvml)[0]["ecc_errors"] == {"volatile_dram": 4, "aggregate_dram": 5}


def test_a_card_that_tells_nothing_says_why() -> None:
    assert ecc(library()) == ({}, {"ecc_errors": 3})
    lost = library()
    lost.nvmlDeviceGetMemoryErrorCounter = lambda *_: 0
    lost.nvmlDeviceGetSramEccErrorStatus = refused(15)
    lost.c_nvmlEccSramErrorStatus_v1_t = lambda: _Struct(version="v1", bThresholdExceeded=0)
    assert ecc(lost)[1] == {"ecc_errors": 15}, "lost on the way is lost"


@pytest.mark.parametrize("known", ["v3", "v2", "v1"])
def test_the_fabric_in_every_version_of_the_call(known: str) -> None:
    asked = []

    def made(version: str) -> Any:
        values = {"state": 3, "status": 0, "version": version}
        values |= {"healthMask": 170} if version != "v1" else {}
        values |= {"healthSummary": 1} if version == "v3" else {}
        return lambda: _Struct(**values)

    def ask(_: Any, pointer: Any) -> None:
        struct = pointer._obj
        asked.append(struct.named)
        if struct.named != known:
            raise NVMLError(25)

    nvml = library(c_nvmlGpuFabricInfo_v3_t=made("v3"), c_nvmlGpuFabricInfo_v2_t=made("v2"),
                   c_nvmlGpuFabricInfo_t=made("v1"))  # fmt: skip
    nvml.nvmlDeviceGetGpuFabricInfoV = ask
    nvml.nvmlDeviceGetGpuFabricInfo = ask
    found = nvml_library._fabric(nvml, object())
    more = {"v3": {"health_mask": 170, "health_summary": 1}, "v2": {"health_mask": 170}, "v1": {}}
    assert found == {"state": 3, "status": 0, **more[known]}
    assert asked[-1] == known


def _Struct(**values: Any) -> Any:  # noqa: N802  (stands for a class)
    import ctypes

    names = [name for name in values if name != "version"]
    made = type("Made", (ctypes.Structure,), {
        "_fields_": [(name, ctypes.c_uint) for name in names], "named": values["version"]})  # fmt: skip
    return made(*(values[name] for name in names))


# -- nvidia-smi -------------------------------------------------------------------------------------


def smi(inside: str) -> dict[str, Any]:
    text = (
        "<nvidia_smi_log><attached_gpus>1</attached_gpus><gpu id='00000000:41:00.0'>"
        f"<uuid>GPU-1</uuid><product_name>NVIDIA A100</product_name>{inside}</gpu></nvidia_smi_log>"
    )
    value = smi_xml.parse(text)
    assert value is not None
    device: dict[str, Any] = value["devices"][0]
    return device


# As drivers from 535 on print it; the names of older ones below
NEW = """<ecc_errors><volatile><sram_uncorrectable_parity>1</sram_uncorrectable_parity>
<sram_uncorrectable_secded>2</sram_uncorrectable_secded><dram_uncorrectable>32</dram_uncorrectable></volatile>
<aggregate><sram_uncorrectable_parity>0</sram_uncorrectable_parity><sram_uncorrectable_secded>4
</sram_uncorrectable_secded><dram_uncorrectable>71</dram_uncorrectable>
<sram_threshold_exceeded>Yes</sram_threshold_exceeded></aggregate></ecc_errors>
<remapped_rows><remapped_row_unc>9</remapped_row_unc><remapped_row_pending>Yes</remapped_row_pending>
<remapped_row_failure>No</remapped_row_failure></remapped_rows>
<mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
<fabric><state>Completed</state><status>Success</status><health><summary>Unhealthy</summary>
<bandwidth>Degraded</bandwidth><route_recovery_in_progress>False</route_recovery_in_progress>
<route_unhealthy>True</route_unhealthy><access_timeout_recovery>False</access_timeout_recovery></health></fabric>"""


def test_nvidia_smi_tells_the_same() -> None:
    found = health.of(smi(NEW))
    assert found == GpuHealth(
        volatile_dram=32, volatile_sram=3, aggregate_dram=71, aggregate_sram=4, sram_over_threshold=True,
        remap_pending=True, remap_failed=False, mig_pending="enabled",
        fabric=("unhealthy", "degraded-bandwidth", "route-unhealthy"),
    )  # fmt: skip


def test_an_older_nvidia_smi() -> None:
    old = """<ecc_errors><volatile><double_bit><device_memory>1</device_memory><total>2</total></double_bit>
    </volatile></ecc_errors><retired_pages><pending_blacklist>Yes</pending_blacklist></retired_pages>"""
    assert health.of(smi(old)) == GpuHealth(volatile_dram=2, retirement_pending=True)


def test_what_is_not_told_is_not_zero() -> None:
    none = """<ecc_errors><volatile><dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>
    <remapped_rows><remapped_row_pending>N/A</remapped_row_pending></remapped_rows>
    <fabric><state>N/A</state><health><route_unhealthy>N/A</route_unhealthy></health></fabric>"""
    assert health.of(smi(none)) is None
