"""Values of doctor out of JSON: as they were written, or refused with the place."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.observed import typed
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
    time=st.none() | st.floats(allow_nan=False),
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
    assert typed.read(Observed, json.loads(json.dumps(asdict(observed)))) == observed


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
    with pytest.raises(typed.TypedError) as caught:
        typed.read(Inside, value)
    assert str(caught.value).startswith(words)


def test_what_is_near_to_wrong_and_is_right() -> None:
    found = typed.read(Inside, {"time": 3, "moon": "full", "host_name": "größe", "zombies": 0})
    assert found == Inside(time=3.0, host_name="größe")
    assert isinstance(found.time, float)
