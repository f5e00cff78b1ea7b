"""root.txtar: whatever a machine has comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.machine.tree import Tree, TreeError, parse_tree, write_tree

PATHS = st.one_of(
    st.text(st.characters(exclude_characters="/\0", codec=None), min_size=1, max_size=20).filter(
        lambda name: name not in (".", "..")
    ),
    st.sampled_from(["a b", "x device", "x -> y", "q quoted 3", '"j"', "a --", "-- b", "\udcff"]),
).map(lambda name: f"/sys/{name}")
TEXTS = st.one_of(
    st.text(),
    st.sampled_from(
        ["-- a --\n", "a\0b\0", "x", "\n", "", "a\r\nb\n", "a\x0c-- b --\n", "\ufeffx\n"]
    ),
)


@given(st.dictionaries(PATHS, TEXTS))
def test_any_text_comes_back(texts: dict[str, str]) -> None:
    assert parse_tree(write_tree(Tree(texts))).texts == texts


@given(st.dictionaries(PATHS, st.text(min_size=1)))
def test_any_link_comes_back(links: dict[str, str]) -> None:
    assert parse_tree(write_tree(Tree(links=links))).links == links


@given(st.text())
def test_any_archive_is_read_or_refused(text: str) -> None:
    try:
        tree = parse_tree(text)
    except TreeError:
        return
    again = parse_tree(write_tree(tree))
    assert again.names() == tree.names()


def test_every_kind_comes_back() -> None:
    tree = Tree(
        texts={"/a/t": "1\n", "/a/g": "x\n"},
        links={"/a/l": "../b c"},
        devices=frozenset({"/dev/kfd", "/dev/x"}),
        denied={"/a/d": "", "/a/e": "[Errno 13] no"},
        errors={"/a/f": "Input/output error"},
        hangs=frozenset({"/a/h"}),
        there=frozenset({"/a/s"}),
        groups={"/dev/kfd": 109, "/a/g": 5, "/a/s": 998},
        access={"/dev/kfd": "denied", "/a/g": "denied", "/a/s": "error"},
    )
    assert parse_tree(write_tree(tree)) == tree


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("-- a quoted --\nx\n", "no JSON string"),
        ('-- a quoted --\n{"a": 1}\n', "no JSON string"),
        (f"-- {'a/' * 3000}b --\n", "too long"),
    ],
)
def test_a_damaged_entry_is_named(text: str, word: str) -> None:
    with pytest.raises(TreeError, match=word):
        parse_tree(text)


def test_a_tree_of_nothing() -> None:
    assert parse_tree("").names() == frozenset()
