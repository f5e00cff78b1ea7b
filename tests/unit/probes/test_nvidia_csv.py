"""`nvidia-smi --query-gpu` in CSV and `nvidia-smi -L`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi

MIB = 1 << 20
COLUMNS = tuple(
    "index,uuid,pci.bus_id,memory.total,driver_version,mig.mode.current,name".split(",")
)


def devices(value: dict[str, Any] | None) -> list[dict[str, Any]]:
    assert value is not None
    found = value["devices"]
    assert isinstance(found, list)
    return found


def test_names_with_commas_and_missing_values() -> None:
    value = nvidia_smi.parse(
        "0, GPU-1, 00000000:01:00.0, 16384, 535.104.05, Enabled, Graphics, Special\n"
        "1, [Unknown Error], 00000000:02:00.0, [N/A], 535.104.05, [N/A], ERR!\n"
        "No devices were found\n",
        COLUMNS,
    )
    first, second = devices(value)
    assert (value or {})["driver_version"] == "535.104.05"
    assert (first["name"], first["mig_mode"]) == ("Graphics, Special", 1)
    assert first["memory_bytes"] == 16384 * MIB
    assert second == {
        "index": 1,
        "pci_bus_id": "00000000:02:00.0",
        "errors": {"name": 999, "uuid": 999, "memory_bytes": 3, "mig_mode": 3},
    }


def test_columns_by_their_header() -> None:
    value = nvidia_smi.parse(
        "timestamp, name, uuid, pci.bus_id, index, memory.total [MiB], compute_cap, ecc.mode.current,"
        " persistence_mode, compute_mode, mig.mode.current, driver_version\n"
        "2026/03/02 10:00:00.000, NVIDIA H100, early, GPU-1, 00000000:1A:00.0, 4, 81559 MiB, 9.0,"
        " Enabled, Disabled, Exclusive_Process, Disabled, 610.57.04 [Deprecated]\n"
    )
    assert value == {
        "driver_version": "610.57.04",
        "devices": [
            {
                "index": 4,
                "name": "NVIDIA H100, early",
                "uuid": "GPU-1",
                "pci_bus_id": "00000000:1A:00.0",
                "memory_bytes": 81559 * MIB,
                "mig_mode": 0,
                "compute": [9, 0],
                "persistence": 0,
                "compute_mode": 3,
                "ecc": 1,
                "errors": {},
            }
        ],
    }


def test_a_byte_order_mark_hides_no_gpu() -> None:
    for line in (
        "0, GPU-1, 00000000:01:00.0, 16384, 535.1, [N/A], T4\n",
        "uuid, name\nGPU-1, T4\n",
    ):
        assert devices(nvidia_smi.parse(f"\ufeff{line}", COLUMNS))[0]["uuid"] == "GPU-1"


def test_what_one_list_does_not_say_another_fills_in() -> None:
    log = {"devices": [{"uuid": "GPU-1", "ecc": 1, "errors": {"compute_mode": 3}}, {"errors": {}}]}
    more = {"devices": [{"uuid": "GPU-1", "compute": [9, 0], "ecc": 0, "compute_mode": 0}]}
    first, second = nvidia_smi.fill(log, more)["devices"]
    assert (first["compute"], first["ecc"], "compute_mode" in first) == ([9, 0], 1, False)
    assert second == {"errors": {}}
    assert nvidia_smi.fill(log, None) == log


def test_a_header_without_index_numbers_them_in_order() -> None:
    value = nvidia_smi.parse("name, uuid\nTesla T4, GPU-1\nTesla T4, GPU-2\nnothing, at all\n")
    assert [(item["index"], item["uuid"]) for item in devices(value)] == [
        (0, "GPU-1"),
        (1, "GPU-2"),
    ]


def test_a_card_that_needs_a_reset_keeps_the_code() -> None:
    line = "0, GPU-1, 00000000:01:00.0, [GPU requires reset], 570.1, [GPU requires reset], T4\n"
    assert devices(nvidia_smi.parse(line, COLUMNS))[0]["errors"] == {
        "memory_bytes": 16,
        "mig_mode": 16,
    }


def test_a_card_without_a_handle_is_listed() -> None:
    value = nvidia_smi.parse(
        "Unable to determine the device handle for GPU0000:01:00.0: GPU is lost.\n"
        "1, GPU-1, 00000000:02:00.0, 16384, 535.1, [N/A], Tesla T4\n",
        COLUMNS,
    )
    lost, healthy = devices(value)
    assert (lost["index"], lost["error"], lost["pci_bus_id"]) == (0, 15, "0000:01:00.0")
    assert (healthy["index"], healthy["name"]) == (1, "Tesla T4")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        'Field "mig.mode.current" is not a valid field to query.\n',
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        "uuid, name\n",
    ],
)
def test_what_is_no_list_of_gpus(text: str) -> None:
    assert nvidia_smi.parse(text) is None
    assert nvidia_smi.parse_list(text) is None


def test_the_list() -> None:
    value = nvidia_smi.parse_list(
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-11111111-0000-0000-0000-000000000000)\n"
        "  MIG 1c.2g.20gb  Device  1: (UUID: MIG-22222222-0000-0000-0000-000000000000)\n"
        "GPU 1: Graphics (rev. 2) Device (UUID: GPU-2)\n"
        "GPU 2: NVIDIA A100-SXM4-40GB (UUID: GPU-3)\n"
        "  MIG 1g.5gb Device 0: (UUID: MIG-GPU-3/7/0)\n"
        "  MIG of no kind Device 1: (UUID: MIG-x)\n"
    )
    first, second, third = devices(value)
    assert [part["name"] for part in first["mig"]] == [
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb",
    ]
    assert second == {"index": 1, "name": "Graphics (rev. 2) Device", "uuid": "GPU-2", "errors": {}}
    assert [(part["gi"], part["ci"]) for part in third["mig"]] == [(7, 0)]


LINES = st.lists(
    st.text(max_size=30)
    | st.lists(
        st.text(max_size=8)
        | st.sampled_from(
            [
                "0", "7", "GPU-1", "00000000:01:00.0", "16384", "16384 MiB", "1 GB", "570.1",
                "[N/A]", "ERR!", "Enabled", "uuid", "name", "index", "memory.total [MiB]",
                "compute_cap", "9.0", '"', '"a', "[", "GPU is lost", "9" * 30,
            ]
        ),
        max_size=9,
    ).map(", ".join)
    | st.sampled_from(
        [
            "GPU 0: T4 (UUID: GPU-1)", "  MIG 1g.5gb Device 0: (UUID: MIG-GPU-1/7/0)",
            "Unable to determine the device handle for GPU 5: no", "GPU 9999: x (UUID: GPU-2)",
        ]
    ),
    max_size=8,
).map("\n".join)  # fmt: skip


@given(text=LINES)
def test_nothing_trips_them(text: str) -> None:
    listed = nvidia_smi.parse_list(text)
    for value in (nvidia_smi.parse(text), listed):
        if value is None:
            continue
        json.dumps(value)
        json.dumps(nvidia_smi.add_list(value, listed))
        for device in value["devices"]:
            assert isinstance(device["index"], int)
            assert all(isinstance(device.get(key, ""), str) for key in ("name", "uuid", "text"))
            assert all(isinstance(code, int) for code in device.get("errors", {}).values())
            assert device.get("memory_bytes", 1) > 0
