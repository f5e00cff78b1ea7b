"""Orders and circles."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.workflows.graph import circle, order

NAMES = st.sampled_from("abcdefgh")
NEEDS = st.dictionaries(NAMES, st.lists(NAMES, max_size=4), max_size=8)


@given(NEEDS)
def test_each_stands_behind_what_it_needs(needs: dict[str, list[str]]) -> None:
    found = order(needs)
    place = {name: at for at, name in enumerate(found)}
    assert len(place) == len(found)
    for name in found:
        for each in needs[name]:
            assert each not in needs or place[each] < place[name]


@given(NEEDS)
def test_all_are_ordered_or_a_circle_is_named(needs: dict[str, list[str]]) -> None:
    way = circle(needs)
    assert (not way) == (set(order(needs)) == set(needs))
    if way:
        assert way[0] == way[-1]
        assert len(set(way)) == len(way) - 1
        for name, following in itertools.pairwise(way):
            assert following in needs[name]


def test_what_is_free_keeps_the_order_of_the_file() -> None:
    assert order({"z": [], "b": ["z"], "a": [], "c": ["b", "a"]}) == ["z", "b", "a", "c"]


def test_the_circle_itself_is_named() -> None:
    needs = {"in": ["a"], "a": ["b"], "b": ["c"], "c": ["a"], "free": []}
    assert circle(needs) == ["a", "b", "c", "a"]
    assert circle({"a": ["a"]}) == ["a", "a"]


def test_a_chain_is_no_circle() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": [], "d": ["b", "c"]}) == []


def test_a_long_chain() -> None:
    needs = {f"n{at}": [f"n{at + 1}"] for at in range(3000)}
    assert order(needs)[0] == "n2999"
    assert circle({**needs, "n3000": ["n0"]})[0] == "n0"
