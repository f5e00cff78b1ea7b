"""amd-smi's JSON, as each version prints it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.probes.amd import amd_smi
from dshpc_setup.probes.amd.card import target_of

LEAF = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["N/A", "0x74a1", "0000:05:00.0", "196592 MB", "gfx942", "CPX", "amdgpu"])
    | st.text(max_size=8)
)
KEYS = st.sampled_from(
    [
        "gpu", "asic", "bus", "bdf", "vram", "size", "value", "unit", "driver", "version", "uuid",
        "market_name", "asic_serial", "device_id", "target_graphics_version", "partition",
        "compute_partition", "accelerator_partition", "numa", "node", "board", "product_name",
        "gpu_data", "vram_size_mb", "rev_id",
    ]
)  # fmt: skip
ANSWER = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)


@given(answer=ANSWER)
def test_no_answer_trips_it(answer: Any) -> None:
    for record in (answer, [answer], {"gpu_data": [answer]}, [{"gpu": 0, "vram": answer}]):
        for card in amd_smi.parse(json.dumps(record)) or ():
            assert card.memory_bytes is None or card.memory_bytes > 0
            assert card.unique_id is None or 0 <= card.unique_id < 1 << 64


@given(text=st.text(max_size=100))
def test_no_text_trips_it(text: str) -> None:
    amd_smi.parse(text)
    assert target_of(text) is None or text.lower().startswith("gfx")


def record(vram: object, driver: object, **more: object) -> dict[str, object]:
    asic = {
        "market_name": "AMD Instinct MI300X",
        "device_id": "0x74a1",
        "asic_serial": "0xABCD00000000EF00",
        "target_graphics_version": "gfx942",
    }
    return {"gpu": 0, "asic": asic, "bus": {"bdf": "0000:05:00.0"}, "vram": vram,
            "driver": driver, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("vram", "driver"),
    [
        ({"size": {"value": 196592, "unit": "MB"}}, {"name": "amdgpu", "version": "6.8.5"}),
        ({"size": "196592 MB"}, {"driver_name": "amdgpu", "driver_version": "6.8.5"}),
        ({"vram_size_mb": 196592}, {"driver_version": "6.8.5"}),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_schemas_say_the_same(vram: object, driver: object, *, wrapped: bool) -> None:
    records = [record(vram, driver)]
    text = json.dumps({"gpu_data": records} if wrapped else records)
    (card,) = amd_smi.parse(text) or ()
    assert (card.name, card.address) == ("AMD Instinct MI300X", "0000:05:00.0")
    assert (card.memory_bytes, card.driver_version) == (196592 << 20, "6.8.5")
    assert (card.unique_id, card.target) == (0xABCD00000000EF00, "gfx942")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("[]", ()), ('{"gpu_data": []}', ()), ('[{"device": 0}]', None), ('{"devices": [1]}', None)],
)
def test_another_schema_is_no_empty_list(text: str, expected: object) -> None:
    assert amd_smi.parse(text) == expected


def test_what_a_gpu_lacks_is_none() -> None:
    text = json.dumps([record("N/A", "N/A", partition="N/A", numa={"node": "N/A"})])
    (card,) = amd_smi.parse(text) or ()
    assert (card.memory_bytes, card.driver_version, card.partition_mode) == (None, None, None)


def test_the_list_has_a_name_of_its_own_for_each() -> None:
    text = json.dumps([{"gpu": 1, "bdf": "0000:26:00.0", "uuid": "12ff74a1-0000-1000-8000-0"}])
    (card,) = amd_smi.parse(text) or ()
    assert (card.index, card.address) == (1, "0000:26:00.0")
    assert card.uuid == "12ff74a1-0000-1000-8000-0"


@pytest.mark.parametrize(
    ("mode", "key"), [("CPX", "accelerator_partition"), ("DPX", "compute_partition")]
)
def test_partition_modes(mode: str, key: str) -> None:
    (card,) = amd_smi.parse(json.dumps([record({}, {}, partition={key: mode})])) or ()
    assert card.partition_mode == mode


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("16 GB", 16 << 30),
        ({"value": 16, "unit": "GiB"}, 16 << 30),
        (512, 512 << 20),
        ("512", 512 << 20),
        ("N/A", None),
        ({"value": "N/A", "unit": "MB"}, None),
        (0, None),
        (True, None),
        (-1, None),
    ],
)
def test_sizes(value: object, expected: int | None) -> None:
    assert amd_smi.size(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gfx942", "gfx942"),
        ("GFX90a", "gfx90a"),
        ("gfx9010", "gfx90a"),
        ("gfx1100", "gfx1100"),
        ("gfx12", None),
        ("N/A", None),
        (None, None),
    ],
)
def test_targets(text: str | None, expected: str | None) -> None:
    assert target_of(text) == expected
