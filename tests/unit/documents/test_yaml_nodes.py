"""YAML as nodes: the places, what is refused, and the values that are made of them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.documents import yaml_nodes
from dshpc_setup.documents.document import Mark
from dshpc_setup.documents.yaml_nodes import Node, YamlError

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    [
        "1e3",
        "0o17",
        "017",
        "yes",
        "~",
        "null",
        "1:30",
        "2001-01-01",
        "=",
        "<<",
        "!a",
        "&a",
        "*a",
        ".5",
    ]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.dates() | _TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=10,
)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def root(text: str, **options: Any) -> Node:
    found = yaml_nodes.read(text, **{"deepest": 32, **options})
    assert found is not None
    return found


@given(_VALUES, st.sampled_from([None, True, False]))
def test_what_pyyaml_writes_is_read_back(value: object, flow: bool | None) -> None:
    text = yaml.dump(value, Dumper=_NoAliases, default_flow_style=flow, allow_unicode=True)
    assert yaml_nodes.typed(root(text)) == value


def test_each_part_knows_its_place() -> None:
    found = root("a: 1\nb:\n  - x\n  - {c: é, d: 'y'}\n")
    (one, _), (key, value) = found.pairs
    assert (one.place, key.place) == (Mark(1, 1), Mark(2, 1))
    assert [item.place for item in value.items] == [Mark(3, 5), Mark(4, 5)]
    assert value.items[1].pairs[1][0].place == Mark(4, 12)
    assert key.place.within("x.yaml") == "x.yaml:2:1"
    assert (value.ends.line, value.ends.column) == (4, 0)


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("a: [", "syntax", Mark(1, 5)),
        ("a:\n  b: *c\n", "unknown", Mark(2, 6)),
        ("a: &b [*b]\n", "inside", Mark(1, 8)),
        ("a: 1\n---\nb: 1\n", "second", Mark(2, 1)),
        ("[[[[x]]]]", "deep", Mark(1, 4)),
        ("- " * 100_000, "deep", Mark(1, 7)),
        ("a: \x00", "syntax", None),
    ],
)
def test_what_is_wrong_has_its_place(text: str, kind: str, place: Mark | None) -> None:
    with pytest.raises(YamlError) as caught:
        yaml_nodes.read(text, deepest=2)
    assert (caught.value.kind, caught.value.place) == (kind, place)


def test_an_alias_is_the_node_that_it_stands_for() -> None:
    found = root("a: &x [1]\nb: *x\n")
    assert found.pairs[0][1] is found.pairs[1][1]
    with pytest.raises(YamlError, match="aliases"):
        root("a: &x [1]\nb: *x\n", aliases=False)


def test_a_bomb_of_aliases_stays_small() -> None:
    lines = ["a0: &a0 [x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    assert len(yaml_nodes.load("\n".join(lines))) == 40


def test_an_empty_text_is_nothing() -> None:
    assert yaml_nodes.read("# nothing\n", deepest=1) is None
    assert yaml_nodes.load("") is None


def test_a_number_is_a_text_and_a_tag_makes_nothing() -> None:
    assert yaml_nodes.load("a: [1, 0x1F, ~, '', !!python/name:os.system x]\n") == {
        "a": ["1", "0x1F", None, "", "x"]
    }
