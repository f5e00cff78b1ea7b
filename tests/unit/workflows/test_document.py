"""YAML texts, read safely."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.documents.document import MOST_BYTES
from dshpc_setup.workflows import document
from dshpc_setup.workflows.document import parse, read


@given(st.binary(max_size=400))
def test_no_bytes_raise(data: bytes) -> None:
    source = read(data)
    assert source.is_whole or source.problems


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#,?% \n\t\\<1.~@`é\x00\x85", max_size=80))
def test_no_text_raises(text: str) -> None:
    found = parse(text)
    assert found.is_whole or found.problems
    json.dumps(found.value).encode()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=8)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)  # fmt: skip


@given(_VALUES)
def test_json_is_read_as_json(value: object) -> None:
    found = parse(json.dumps(value))
    if not found.problems:
        assert found.value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("true", True),
        ("1:30", "1:30"),
        ("2026-01-31", "2026-01-31"),
        ("0755", 755),
        ("0x1F", 31),
        ("1e-3", 0.001),
        ("'1'", "1"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("~", None),
        ("1_000", "1_000"),
    ],
)
def test_plain_words(text: str, value: object) -> None:
    found = parse(f"a: {text}")
    assert found.problems == ()
    assert found.value == {"a": value}
    assert type(found.value["a"]) is type(value)


def test_plain_words_are_kept_as_written() -> None:
    source = parse("args: [1e-3, 0755, '7', x]")
    assert source.texts[("args", 0)] == "1e-3"
    assert source.texts[("args", 1)] == "0755"
    assert ("args", 2) not in source.texts


def test_lines() -> None:
    found = parse("a: 1\n\nb:\n  - x\n  -\n    c: 2\n")
    assert found.line(("b",)) == 3
    assert found.line(("b", 0)) == 4
    assert found.line(("b", 1, "c")) == 6
    assert found.line(("b", 1, "no")) == 6 or found.line(("b", 1, "no")) == 5


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "empty"),
        ("# only a comment\n", 1, "empty"),
        ("a: 1\na: 2\n", 2, "comes twice, first in line 1"),
        ("a: !!python/object/apply:os.system [id]\n", 1, "tag"),
        ("a: !!str 1\n", 1, "tag"),
        ("a:\n\t- b\n", 2, "not YAML"),
        ("a: 1\n---\nb: 1\n", 2, "second document"),
        ("a: &x [*x]\n", 1, "lies in itself"),
        ("a: *x\n", 1, "not YAML|stands for nothing"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "Merge keys"),
        ("? [a]\n: 1\n", 1, "key is no plain text"),
        ('a: "\\ud800"\n', 1, "half of a pair"),
        ("a: [1, 2\n", 2, "not YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, words: str) -> None:
    problem = parse(text).problems[0]
    assert any(word in problem.what for word in words.split("|")), problem
    assert problem.line == line
    assert problem.right


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    found = parse("\n".join(lines))
    assert not found.is_whole
    assert f"more than {document.MOST_PARTS} parts" in found.problems[-1].what


def test_few_aliases_are_taken() -> None:
    found = parse("a: &a {gpus: 1}\nb: *a\n")
    assert found.problems == ()
    assert found.value == {"a": {"gpus": 1}, "b": {"gpus": 1}}


def test_depth_is_bounded() -> None:
    assert parse("[" * 18 + "]" * 18).problems[0].what.startswith("Lists and keys lie")
    assert parse("[" * 17 + "]" * 17).is_whole
    assert not parse("[" * 5000).is_whole


def test_depth_is_bounded_through_aliases_too() -> None:
    links = "".join(f"a{at}: &a{at} {'[' * 14}*a{at - 1}{']' * 14}\n" for at in range(1, 40))
    hidden = ", ".join(f"&b{at} [*b{at - 1}]" for at in range(1, 2000))
    for text in (f"a0: &a0 x\n{links}", f"x: 1\nx: [&b0 [1], {hidden}]\ny: *b1999\n"):
        source = parse(text)
        assert not source.is_whole
        assert "deep in each other" in source.problems[-1].what
    once = "a: &a [[[x]]]\nb: [[*a]]\n"
    assert parse(once).value == {"a": [[["x"]]], "b": [[[[["x"]]]]]}


def test_files_are_bounded() -> None:
    assert "larger than" in read(b"#" * (MOST_BYTES + 1)).problems[0].what
    assert "UTF-8" in read(b"a: \xff\n").problems[0].what
    assert read("\ufeffa: 1".encode()).value == {"a": 1}
