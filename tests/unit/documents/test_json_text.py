from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dshpc_setup.documents.document import MOST_BYTES, MOST_PROBLEMS
from dshpc_setup.documents.json_text import parse, read
from dshpc_setup.documents.shown import path_text, shown

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
# Texts that are nearly JSON
PIECES = st.sampled_from(
    ["{", "}", "[", "]", ",", ":", '"a"', '"', "'b'", "1", "-", "0.5e3", "true", "None", "//x\n",
     "/*", "*/", "#", "\n", "\r\n", "\r", " ", "\\", "\ufeff", "\0", "NaN", '"\\u12', '"\\ud800"']
)  # fmt: skip


@given(JSON, st.sampled_from([None, 1, "\t"]))
def test_every_json_text_is_read_as_python_reads_it(
    value: object, indent: int | str | None
) -> None:
    for ascii_only in (True, False):
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        found = parse(text)
        assert found.is_whole
        assert not found.problems
        assert json.dumps(found.value) == json.dumps(value)


@given(st.lists(PIECES, max_size=20).map("".join) | st.text())
@example("")
@example("{\n\n")
def test_what_python_refuses_is_refused_at_a_line_of_the_text(text: str) -> None:
    found = parse(text)
    try:
        json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        assert found.problems
    count = len(text.splitlines()) if text.isprintable() else text.count("\n") + text.count("\r")
    for each in found.problems:
        assert 1 <= each.line <= max(1, count + 1)
        assert each.what
        assert each.right


def _no_constant(name: str) -> None:
    raise ValueError(name)


@given(
    st.binary(max_size=200) | st.lists(PIECES, max_size=20).map(lambda each: "".join(each).encode())
)
def test_no_bytes_raise(data: bytes) -> None:
    found = read(data)
    assert found.is_whole or found.problems


def test_lines_of_parts_with_each_kind_of_line_end() -> None:
    for end in ("\n", "\r\n", "\r"):
        found = parse(end.join(['{"a": 1,', '"b": {', '"c": [', "1,", "2]}}"]))
        assert not found.problems
        assert [found.line(path) for path in [(), ("a",), ("b", "c"), ("b", "c", 1)]] == [
            1,
            1,
            3,
            5,
        ]
        assert found.line(("b", "absent")) == 2


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('{"a": 1, // one\n"b": 2}', 1, "A comment"),
        ('{"a": 1,\n/* two\n */ "b": 2}', 2, "A comment"),
        ('{"a": [1, 2,],\n"b": 2,}', 1, "A comma behind the last part of a list"),
        ('{"a": 1\n"b": 2}', 1, "A comma is missing"),
        ('{"a": 1,\n"a": 2}', 2, 'The key "a" comes twice, first in line 1'),
        ("\ufeff{}", 1, "byte order mark"),
    ],
)
def test_what_is_read_over_is_named(text: str, line: int, words: str) -> None:
    found = parse(text)
    assert found.is_whole
    assert any(each.line == line and words in each.what for each in found.problems)


@pytest.mark.parametrize(
    ("text", "line", "what", "right"),
    [
        ("", 1, "The file is empty", "one object"),
        ("{\n  'a': 1}", 2, "column 3: A key in double quotes", '"name"'),
        ("{\n  a: 1}", 2, 'there is "a"', '"name"'),
        ("{'a'", 1, "A key", ""),
        ("{\"a\": 'b'}", 1, "single quote", '"..."'),
        ('{"a": True}', 1, "True is not a word of JSON", "true"),
        ('{"a": None}', 1, "None is not", "null"),
        ('{"a": NaN}', 1, "JSON has no NaN", ""),
        ('{"a": 8GB}', 1, "is not how JSON writes a number", "unit"),
        ('{"a": 01}', 1, "is not how JSON writes", "0.5"),
        ('{"a": .5}', 1, "is not how JSON writes", "0.5"),
        ('{"a": 1e999}', 1, "too large", ""),
        ('{"a": ' + "9" * 5000 + "}", 1, "too long", ""),
        ('{"a": python3}', 1, "it has no quotes", '"python3"'),
        ('{"a" = 1}', 1, 'A colon is expected behind the key "a"', '"a": VALUE'),
        ('{"a": }', 1, 'A value is expected here, and there is "}"', ""),
        ('{"a":\n"b\n"}', 2, "no closing quote", r"\n"),
        ('{"a": "b\tc"}', 1, "control character", r"\t"),
        (r'{"a": "C:\data"}', 1, "backslash", r"\\"),
        (r'{"a": "\ud800"}', 1, "half of a pair", "character"),
        ('{"a": 1', 1, "The file ends within an object", "}"),
        ('{"a": [1,\n\n', 1, "The file ends within a list", "]"),
        ('{"a": [1}', 1, "A comma or a closing ]", ""),
        ("{} {}", 1, "Behind the end", "one object"),
        ("[" * 40, 1, "more than 32 deep", ""),
    ],
)
def test_what_cannot_be_read_is_said_in_plain_words(
    text: str, line: int, what: str, right: str
) -> None:
    found = parse(text)
    assert not found.is_whole
    last = found.problems[-1]
    assert last.line == line
    assert what in last.what
    assert right in last.right


def test_a_depth_that_is_just_right() -> None:
    assert parse("[" * 33 + "]" * 33).is_whole


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b'{"a":\n"\xe4"}', 2, "0xe4 is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), 1, "UTF-16"),
        (b" " * (MOST_BYTES + 1), 1, "larger than 256 KiB"),
    ],
)
def test_bytes_that_are_no_text_of_ours(data: bytes, line: int, words: str) -> None:
    found = read(data)
    assert (found.problems[0].line, found.is_whole) == (line, False)
    assert words in found.problems[0].what
    assert read(b"{}" + b" " * (MOST_BYTES - 2)).is_whole


def test_problems_have_an_end() -> None:
    assert len(parse("[" + "1,//\n" * 1000 + "1]").problems) == MOST_PROBLEMS


def test_paths_and_values_can_be_printed() -> None:
    assert path_text(("resources", "env", "A B", 0)) == '$.resources.env["A B"][0]'
    assert shown("a\x1b[31m\u202e\n") == r'"a\u001b[31m\u202e\n"'
    assert len(shown("x" * 1000)) <= 60
