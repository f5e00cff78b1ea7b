"""Values of doctor out of JSON: as they were written, or refused with the place."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import codec
from dshpc_setup.observed.model import Daemon, Disk, Inside, KeyFile, Observed

_TEXT = st.text(max_size=8)
_DAEMONS = st.builds(
    Daemon,
    _TEXT,
    st.booleans(),
    pid=st.none() | st.integers(),
    version=st.none() | _TEXT,
)
_INSIDE = st.builds(
    Inside,
    time=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    daemons=st.lists(_DAEMONS, max_size=2).map(tuple),
    controller=st.sampled_from([None, "up", "down", "silent"]),
    key=st.none() | st.builds(KeyFile, st.sampled_from(["present", "denied"]), mode=st.integers()),
    state_volume=st.none() | st.just(Disk("state", "/state", 1, 2, 3)),
    device_files=st.dictionaries(_TEXT, st.booleans(), max_size=2),
    gpu_problems=st.dictionaries(_TEXT, st.lists(_TEXT, max_size=2).map(tuple), max_size=2),
)


@given(_INSIDE)
def test_what_was_written_is_read_back(inside: Inside) -> None:
    observed = Observed(inside=inside)
    assert codec.from_json(Observed, json.loads(json.dumps(asdict(observed)))) == observed


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "this object: this is no dict"),
        ({"zombies": "2"}, "zombies: this is no int"),
        ({"zombies": True}, "zombies: this is no int"),
        ({"zombies": 2.0}, "zombies: this is no int"),
        ({"zombies": None}, "zombies: this is no int"),
        ({"time": "now"}, "time: this is no float"),
        ({"time": True}, "time: this is no float"),
        ({"controller": "asleep"}, "controller: this is none of 'up', 'down', 'silent'"),
        ({"controller": ["up"]}, "controller: this is none of 'up', 'down', 'silent'"),
        ({"daemons": {}}, "daemons: this is no list"),
        ({"daemons": [{"name": "slurmd"}]}, "daemons[0]: this is missing: up"),
        ({"daemons": [{"name": "slurmd", "up": 1}]}, "daemons[0].up: this is no bool"),
        ({"gpus": ["h100", 3]}, "gpus[1]: this is no str"),
        ({"gpu_problems": {"GPU 0": "DSH-NV-001"}}, "gpu_problems.GPU 0: this is no list"),
        ({"gres_conf": "\ud800"}, "gres_conf: this is no text: half of a pair"),
    ],
)
def test_nothing_is_converted(value: Any, words: str) -> None:
    with pytest.raises(codec.CodecError) as caught:
        codec.from_json(Inside, value, halves=False)
    assert str(caught.value).startswith(words)


def test_what_is_near_to_wrong_and_is_right() -> None:
    found = codec.from_json(Inside, {"time": 3, "moon": "full", "host_name": "größe", "zombies": 0})
    assert found == Inside(time=3.0, host_name="größe")
    assert isinstance(found.time, float)


@dataclass(frozen=True)
class Part:
    name: str
    value: str | int | float | bool | None = None


@dataclass(frozen=True)
class Whole:
    pair: tuple[str, int]
    parts: tuple[Part, ...] = ()
    size: int | tuple[int, ...] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[Part] = ()


PART = Part("a", 1.5)


@pytest.mark.parametrize(
    "value",
    [
        Whole(("a", 1)),
        Whole(("a", 1), (PART, Part("b", True), Part("c", "d"), Part("e", 7), Part("f")), 3),
        Whole(("\ud800", 1), size=(1, 2), others={"a": [{}]}, lines=(PART,)),
    ],
)
def test_each_kind_comes_back_with_its_type(value: Whole) -> None:
    found = codec.from_json(
        Whole, json.loads(json.dumps(codec.to_json(value, "s/1"))), "s/1", whole=True
    )
    assert found == value
    assert [type(each.value) for each in found.parts] == [type(each.value) for each in value.parts]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "this object: this is missing: pair"),
        ({"pair": ["a"]}, "pair: this has 1 parts, not 2"),
        ({"pair": ["a", "b"]}, r"pair\[1\]: this is no int"),
        ({"pair": ["a", 1], "size": "x"}, "size: this is no list"),
        ({"pair": ["a", 1], "parts": [{"name": "a", "x": 1}]}, r"parts\[0\]: there is no x"),
        ({"pair": ["a", 1], "parts": [{"name": "a", "value": []}]}, r"parts\[0\].value: "),
        ({"pair": ["a", 1], "others": []}, "others: this is no dict"),
    ],
)
def test_what_is_not_of_the_kind(value: object, words: str) -> None:
    with pytest.raises(codec.CodecError, match=f"^{words}"):
        codec.from_json(Whole, value, unknown="refused")


@pytest.mark.parametrize("value", [None, [], {}, {"schema": "s/2"}, {"schema": ["s/1"]}])
def test_what_names_another_schema(value: object) -> None:
    with pytest.raises(codec.CodecError, match="not a s/1 object"):
        codec.from_json(Whole, value, "s/1")


def test_what_is_missing_and_what_is_unknown() -> None:
    assert codec.from_json(Part, {"name": "a", "moon": 1}) == Part("a")
    with pytest.raises(codec.CodecError, match="missing: value"):
        codec.from_json(Part, {"name": "a"}, whole=True)


@pytest.mark.parametrize("value", [10**400, 2**70 + 1, float("nan"), float("inf"), True, "1"])
def test_what_is_no_float(value: object) -> None:
    with pytest.raises(codec.CodecError, match="time: this is no float"):
        codec.from_json(Inside, {"time": value})
