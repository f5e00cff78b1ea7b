from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import Fix
from dshpc_setup.passthrough import Attempt, Cause, Passthrough
from dshpc_setup.passthrough.handover import Handover, Mechanism
from dshpc_setup.passthrough.model import AttemptState

NOTHING = Handover("none")
FIX = (Fix("Restart Docker", "sudo systemctl restart docker"),)

texts = st.text(max_size=20)
many = st.lists(texts, max_size=3).map(tuple)
fixes = st.lists(st.builds(Fix, texts, st.none() | texts, st.booleans()), max_size=2).map(tuple)
handovers = st.builds(
    Handover,
    st.sampled_from(get_args(Mechanism)),
    ids=many,
    driver=texts,
    devices=many,
    volumes=many,
    group_add=st.lists(st.integers(0, 2**31), max_size=3).map(tuple),
    environment=st.dictionaries(texts, texts, max_size=3),
)
attempts = st.builds(
    Attempt,
    st.sampled_from(get_args(Mechanism)),
    st.sampled_from(get_args(AttemptState)),
    texts,
    st.none() | texts,
    many,
    fixes,
    st.none() | handovers,
    st.none() | st.floats(0, 1e9, allow_nan=False),
)
proofs = st.builds(
    Passthrough,
    handovers,
    texts,
    st.lists(attempts, max_size=4).map(tuple),
    texts,
    st.lists(st.builds(Cause, st.none() | texts, texts, fixes), max_size=2).map(tuple),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(proofs)
def test_a_proof_is_read_back_as_it_was_written(proof: Passthrough) -> None:
    assert Passthrough.from_json(json.loads(json.dumps(proof.to_json()))) == proof


@given(anything)
def test_garbage_is_no_proof(value: object) -> None:
    assert Passthrough.from_json(value) is None


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(place for key, item in inner for place in _places(item, (*at, key)))]


@given(proofs, st.data())
def test_a_proof_with_one_value_replaced_never_raises(
    proof: Passthrough, data: st.DataObject
) -> None:
    value = json.loads(json.dumps(proof.to_json()))
    place = data.draw(st.sampled_from(_places(value)[1:]))
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = data.draw(anything)
    read = Passthrough.from_json(value)
    assert read is None or json.loads(json.dumps(read.to_json())) == value


def test_a_proof_of_another_version_is_none() -> None:
    assert Passthrough.from_json({"mechanism": "cdi", "reason": "", "failures": []}) is None
    value = Passthrough(NOTHING, "").to_json()
    assert (
        Passthrough.from_json({**value, "handover": {**value["handover"], "mechanism": "wsl"}})
        is None
    )


def row(state: AttemptState, finding: str | None = None, fix: tuple[Fix, ...] = ()) -> Attempt:
    return Attempt("cdi", state, "why", finding, fix=fix)


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ((row("impossible", fix=FIX), row("fails"), row("fails", "DSH-DK-007")), 2),
        ((row("impossible", "DSH-DK-060", FIX), row("fails"), row("impossible")), 1),
        ((row("impossible"), row("impossible", "DSH-DK-016", FIX)), 1),
        ((row("impossible"), row("impossible")), 0),
    ],
)
def test_what_is_worth_fixing_first(rows: tuple[Attempt, ...], first: int) -> None:
    assert Passthrough(NOTHING, "", rows).to_fix is rows[first]


def test_nothing_is_to_be_fixed_where_one_works_or_none_was_tried() -> None:
    assert (
        Passthrough(Handover("cdi"), "", (row("fails", "DSH-DK-007"), row("works"))).to_fix is None
    )
    assert Passthrough(NOTHING, "").to_fix is None


def test_a_failure_keeps_what_was_said_and_what_was_tried() -> None:
    handover = Handover("runtime", driver="amd")
    tried = Attempt("runtime", "untested", "", handover=handover)
    failed = tried.failed(Cause("DSH-DK-009", "why", FIX), "words", "", ms=3.0)
    assert failed == Attempt(
        "runtime", "fails", "why", "DSH-DK-009", ("words",), FIX, handover, 3.0
    )
    assert failed.way == "the amd runtime"
    assert Attempt("runtime", "impossible", "").way == "the vendor's runtime"
    assert Attempt("device-request", "impossible", "").way == "a device request (--gpus)"
