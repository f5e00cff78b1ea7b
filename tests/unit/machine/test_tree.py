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


TIMES = st.integers(0, 10**15 - 1).map(lambda milliseconds: milliseconds / 1000)
NUMBERS = st.tuples(st.integers(0, 4095), st.integers(0, 1 << 20))


@given(st.dictionaries(PATHS, st.tuples(TEXTS, TIMES)), st.dictionaries(PATHS, NUMBERS))
def test_any_time_and_any_number_come_back(
    files: dict[str, tuple[str, float]], nodes: dict[str, tuple[int, int]]
) -> None:
    texts = {path: text for path, (text, _) in files.items()}
    devices = {path: number for path, number in nodes.items() if path not in texts}
    changed = {path: when for path, (_, when) in files.items()}
    tree = Tree(texts, devices=frozenset(devices), numbers=devices, changed=changed)
    assert parse_tree(write_tree(tree)) == tree


@given(st.dictionaries(PATHS, st.sampled_from(["x86_64", "i686", "machine 8", "x86_64 "])))
def test_any_processor_comes_back(known: dict[str, str]) -> None:
    told = {path: name.strip() for path, name in known.items()}
    tree = Tree(there=frozenset(told), architectures=told, groups=dict.fromkeys(told, 44))
    assert parse_tree(write_tree(tree)) == tree


@pytest.mark.parametrize(
    "header",
    ["x @", "x @-5", "x @1e9", "x quoted 1:2", "x there 1:2", "x device 1:", "x device 1:2:3",
     "x device @5 109", "x device x86_64", "x there X86", "x there machine x"],
)  # fmt: skip
def test_what_is_nearly_a_time_or_a_number_is_a_name(header: str) -> None:
    tree = parse_tree(f"-- {header} --\n")
    assert tree.names() == {f"/{header}"}
    assert (tree.numbers, tree.changed) == ({}, {})


def test_a_recording_without_times_and_numbers_is_read_as_before() -> None:
    tree = parse_tree("-- dev/kfd device denied 109 --\n-- a/b --\nx\n-- a/s there 5 --\n")
    assert tree == Tree(
        {"/a/b": "x\n"},
        devices=frozenset({"/dev/kfd"}),
        there=frozenset({"/a/s"}),
        groups={"/dev/kfd": 109, "/a/s": 5},
        access={"/dev/kfd": "denied"},
    )


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
        numbers={"/dev/kfd": (510, 0), "/dev/x": (195, 255)},
        changed={"/dev/kfd": 5.0, "/a/t": 1748736000.25, "/a/d": 1.0, "/a/f": 2.0, "/a/h": 3.0,
                 "/a/s": 4.0, "/a/g": 6.5},
    )  # fmt: skip
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
