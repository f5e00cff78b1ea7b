"""Versions by Debian's policy; tests/integration/test_debian_base.py compares with dpkg."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.debian.versions import Relation, holds, key

TEXTS = st.text(alphabet="0129aZ.+~-:", max_size=12)
RISING = (
    "1.0~~", "1.0~~a", "1.0~", "1.0~rc1-1", "1.0", "1.0-1~deb13u1", "1.0-1", "1.0-1+b1", "1.0-1+deb13u1",
    "1.0-10", "1.0a", "1.0+dfsg", "1.0.1", "1.2", "1.10", "1:0.1", "2:0~", "10:0",
)  # fmt: skip


@pytest.mark.parametrize(("lower", "higher"), [*itertools.pairwise(RISING)])
def test_order(lower: str, higher: str) -> None:
    assert key(lower) < key(higher)


@pytest.mark.parametrize(
    ("one", "other"), [("1.0", "0:1.0"), ("1.0", "1.0-0"), ("1.0", "1.00"), ("a", "a0"), ("0", "")]
)
def test_equal(one: str, other: str) -> None:
    assert key(one) == key(other)
    assert holds(one, "=", other)


@given(TEXTS, TEXTS)
def test_of_two_one_relation_of_each_pair_holds(one: str, other: str) -> None:
    pairs: tuple[tuple[Relation, Relation], ...] = (("<<", ">="), (">>", "<="))
    for relation, opposite in pairs:
        assert holds(one, relation, other) != holds(one, opposite, other)
        assert holds(one, relation, other) == holds(
            other, {"<<": ">>", ">>": "<<"}[relation], one  # type: ignore[arg-type]
        )  # fmt: skip
    assert holds(one, "=", other) == (holds(one, "<=", other) and holds(one, ">=", other))


@given(TEXTS)
def test_a_tilde_is_before_the_end(version: str) -> None:
    assert key(f"{version}~") < key(version) < key(f"{version}+")
