"""Lists of packages: read, and what is installed together."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.debian.faults import DebianError
from dshpc_setup.debian.index import Index, Need, clauses, closure, fields, fulfils, package

HASH = "a" * 64


def stanza(name: str, version: str = "1", **more: str) -> str:
    told = {
        "Package": name,
        "Version": version,
        "Filename": f"pool/main/{name}_{version}.deb",
        "Size": "7",
        "SHA256": HASH,
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    return "".join(f"{key}: {value}\n" for key, value in told.items())


def index(*stanzas: str) -> Index:
    return Index("\n".join(stanzas))


def names(of: Index, *wanted: str) -> list[str]:
    return [each.name for each in closure(of, wanted)]


NAMES = st.from_regex(r"[a-z0-9][a-z0-9+.-]{1,8}", fullmatch=True)
VERSIONS = st.from_regex(r"[0-9][a-z0-9+.~]{0,5}", fullmatch=True)
NEEDS = st.one_of(
    NAMES.map(Need),
    st.builds(Need, NAMES, st.sampled_from(("<<", "<=", "=", ">=", ">>")), VERSIONS),
)


def told(need: Need) -> str:
    return f"{need.name} ({need.relation} {need.version})" if need.relation else need.name


@given(st.lists(st.lists(NEEDS, min_size=1, max_size=3), max_size=4))
def test_what_is_needed_is_read_as_it_was_written(wanted: list[list[Need]]) -> None:
    text = ", ".join(" | ".join(map(told, each)) for each in wanted)
    assert clauses(text) == tuple(map(tuple, wanted))


FIELD = st.from_regex(r"[A-Z][A-Za-z-]{0,6}", fullmatch=True)
VALUE = st.from_regex(r"[!-~]([ -~]{0,9}[!-~])?(\n [!-~]{1,5}){0,2}", fullmatch=True)


@given(st.dictionaries(FIELD, VALUE))
def test_fields_are_read_as_they_were_written(wanted: Mapping[str, str]) -> None:
    lower: dict[str, str] = {}
    for name, value in wanted.items():
        lower.setdefault(name.lower(), value)
    assert fields("".join(f"{name}: {value}\n" for name, value in wanted.items())) == lower


@given(st.text(alphabet="Package: Vrsion1\nabDepends,|()=<>", max_size=200))
def test_whatever_stands_there_it_is_read_or_refused(text: str) -> None:
    try:
        found = Index(text)
        closure(found, ("a",))
    except DebianError as error:
        assert error.fault in ("index", "missing")


@given(st.dictionaries(NAMES, st.lists(NAMES, max_size=3), min_size=1, max_size=12), st.data())
def test_what_is_chosen_is_whole_and_in_order(
    graph: dict[str, list[str]], data: st.DataObject
) -> None:
    """All needs of all chosen, nothing beside them, and each after its needs where there is no circle."""
    known = {name: [one for one in needs if one in graph] for name, needs in graph.items()}
    of = index(*(stanza(name, Depends=", ".join(needs)) for name, needs in known.items()))
    wanted = data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1))
    found = names(of, *wanted)
    reached, left = set(), list(wanted)
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += known[name]
    assert set(found) == reached
    assert len(found) == len(reached)
    for name in found:
        for need in known[name]:
            circle = name in _below(known, need)
            assert circle or found.index(need) < found.index(name)


def _below(graph: Mapping[str, list[str]], name: str) -> set[str]:
    seen: set[str] = set()
    left = [name]
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += graph[one]
    return seen


def test_the_newest_version_of_all_lists_counts() -> None:
    found = Index(stanza("a", "1.9"), stanza("a", "1.10") + "\n" + stanza("a", "1.2")).get("a")
    assert found is not None
    assert (found.version, found.origin) == ("1.10", 1)
    same = Index(stanza("a", "1"), stanza("a", "1")).get("a")
    assert same is not None
    assert same.origin == 0


def test_of_alternatives_the_first_that_is_there_or_one_that_is_chosen_anyhow() -> None:
    of = index(
        stanza("a", Depends="gone | b | c"),
        stanza("b"),
        stanza("c"),
        stanza("d", Depends="c, a"),
    )
    assert names(of, "a") == ["b", "a"]
    assert sorted(names(of, "d")) == ["a", "c", "d"]


def test_a_name_that_others_provide_is_the_likeliest_of_them() -> None:
    of = index(
        stanza("z", Depends="virtual"),
        stanza("one", Provides="virtual, x"),
        stanza("two", Provides="virtual (= 3)", Priority="required"),
        stanza("v", Depends="virtual (>= 2)"),
        stanza("w", Depends="virtual (>= 4)"),
    )
    assert names(of, "z") == ["two", "z"]
    assert names(of, "v") == ["two", "v"]
    with pytest.raises(DebianError) as raised:
        names(of, "w")
    assert raised.value.fault == "missing"
    assert names(of, "one", "z") == ["one", "z"]


def test_a_base_is_what_is_essential_or_required_with_two_more() -> None:
    of = index(
        stanza("e", Essential="yes"),
        stanza("r", Priority="required"),
        stanza("o", Priority="optional"),
    )
    assert of.base() == ("apt", "ca-certificates", "e", "r")
    assert of.essential() == ("e",)


def test_a_version_that_does_not_hold_is_not_taken() -> None:
    assert fulfils(package(stanza("a", "2")), Need("a", ">=", "1"))
    assert not fulfils(package(stanza("a", "2", Provides="b")), Need("b", ">=", "1"))
    assert fulfils(package(stanza("a", "2", Provides="b")), Need("b"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"SHA256": "A" * 64},
        {"SHA256": ""},
        {"Size": "-1"},
        {"Filename": "../../etc/passwd"},
        {"Filename": "/etc/passwd"},
        {"Version": ""},
        {"Depends": "(>= 1)"},
    ],
)
def test_a_package_that_cannot_be_fetched_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(DebianError) as raised:
        index(stanza("a", **wrong)).get("a")
    assert raised.value.fault == "index"


def test_a_list_of_full_size_is_no_burden() -> None:
    one = stanza("a", Description="x" * 500)
    text = "\n".join(one.replace("Package: a", f"Package: a{at}", 1) for at in range(70_000))
    began = time.process_time()
    assert len(Index(text)) == 70_000
    assert time.process_time() - began < 10  # it takes some 0.2 s
