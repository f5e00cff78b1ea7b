"""rocm-smi's JSON, as each version of ROCm prints it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.probes.amd import rocm_smi, tool_json

VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["N/A", "0x73df", "0000:0A:00.0", "34342961152", "gfx942", "CPX", "0xffff" * 9]
    )
)
CARD = st.dictionaries(
    st.sampled_from(
        [
            "GPU ID", "Device ID", "Device Name", "Device Rev", "Card series", "Card Series",
            "Card Model", "Card SKU", "Unique ID", "PCI Bus", "VRAM Total Memory (B)", "GFX Version",
            "Driver version", "(Topology) Numa Node", "Compute Partition",
        ]
    )
    | st.text(max_size=6),
    VALUES,
    max_size=8,
)  # fmt: skip
ANSWER = st.dictionaries(
    st.sampled_from(["card0", "card1", "card10", "system", "Card 3"]) | st.text(max_size=6),
    CARD | VALUES | st.lists(CARD, max_size=2),
    max_size=5,
)


@given(text=st.text(max_size=200) | st.sampled_from(["[" * 100000, '{"a":' * 5000, "9" * 9000]))
def test_no_text_trips_it(text: str) -> None:
    rocm_smi.parse(text)


@given(answer=ANSWER | st.lists(ANSWER, max_size=3), noise=st.text(max_size=30))
def test_no_answer_trips_it(answer: Any, noise: str) -> None:
    for text in (json.dumps(answer), f"{noise}\n{json.dumps(answer, indent=2)}\n{noise}"):
        for card in rocm_smi.parse(text) or ():
            assert card.memory_bytes is None or card.memory_bytes >= 0
            assert card.name is None or card.name.isprintable()


@given(answer=ANSWER, cut=st.integers(min_value=1, max_value=200))
def test_what_is_cut_off_is_no_answer(answer: dict[str, Any], cut: int) -> None:
    text = json.dumps(answer)
    if 2 < cut < len(text):
        found = rocm_smi.parse(text[:cut])
        assert not found


def card(**more: str) -> dict[str, str]:
    return {"PCI Bus": "0000:0A:00.0", "VRAM Total Memory (B)": "12868124672", **more}


def test_rocm_4_has_ids_for_names() -> None:
    text = json.dumps(
        {
            "card0": card(**{"GPU ID": "0x73df", "Unique ID": "N/A", "Card series": "0x1002"}),
            "system": {"Driver version": "5.11.32"},
        }
    )
    (found,) = rocm_smi.parse(text) or ()
    assert (found.name, found.unique_id, found.device_id) == (None, None, 0x73DF)
    assert (found.address, found.memory_bytes) == ("0000:0a:00.0", 12868124672)
    assert found.driver_version == "5.11.32"


def test_rocm_6_has_other_spellings_and_warns_first() -> None:
    cards = {
        f"card{number}": card(**{"Card Series": f"Number {number}", "GFX Version": "gfx9010"})
        for number in (10, 9)
    }
    text = f"WARNING: [low power] {{...}}\n\n{json.dumps(cards, indent=4)}\n"
    found = rocm_smi.parse(text) or ()
    assert [item.name for item in found] == ["Number 9", "Number 10"]
    assert found[0].target == "gfx90a"


def test_several_objects_are_one_answer() -> None:
    first, second = {"card0": card()}, {"card0": {"Unique ID": "0x1f"}, "card1": card()}
    found = rocm_smi.parse(json.dumps(first) + json.dumps(second)) or ()
    assert [item.index for item in found] == [0, 1]
    assert (found[0].unique_id, found[0].memory_bytes) == (0x1F, 12868124672)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("WARNING: No JSON data to report", ()),
        ('{"system": {"Driver version": "6.0"}}', ()),
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)", ()),
        ("Segmentation fault", None),
        ("", None),
        ('{"card0": {"GPU ID": "0x73df"', None),
        ("<html>", None),
        ('{"card0": 5, "card1": ["x"]}', None),
        ('{"devices": [{"id": 0}]}', None),
        ("{}", ()),
    ],
)
def test_nothing_and_not_understood_are_two_things(text: str, expected: object) -> None:
    assert rocm_smi.parse(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("N/A", None), ("", None), ("0x1002", None), (7, None), (" AMD  MI210 ", "AMD MI210")],
)
def test_names(value: object, expected: str | None) -> None:
    assert tool_json.name(value) == expected
