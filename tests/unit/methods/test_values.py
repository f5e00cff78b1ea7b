from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.documents.document import MOST_PROBLEMS
from dshpc_setup.methods.model import Method, Value
from dshpc_setup.methods.values import count_fits, table, typed
from tests.unit.methods.made import valid

METHOD = valid(
    parameters=[
        {"name": "lr", "type": "number", "required": True, "description": "Step size."},
        {"name": "epochs", "type": "integer", "default": 10},
        {"name": "verbose", "type": "boolean", "default": False},
        {"name": "note", "type": "string"},
        {"name": "kind", "type": "string", "default": "a", "allowed_values": ["a", "b"]},
    ]
)
REST = {"epochs": 10, "verbose": False, "note": None, "kind": "a"}


def of_kind(kind: str, **more: Any) -> Method:
    return valid(parameters=[{"name": "p", "type": kind, **more}])


def test_defaults_stand_where_nothing_is_given() -> None:
    assert typed(METHOD, ["lr=0.1"]) == ({"lr": 0.1, **REST}, [])


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("integer", "10", 10),
        ("integer", "-3", -3),
        ("integer", "+3", 3),
        ("integer", "1e3", 1000),
        ("integer", "9007199254740993.0", 2**53 + 1),
        ("integer", "9223372036854775807", 2**63 - 1),
        ("number", "10", 10),
        ("number", " .5 ", 0.5),
        ("number", "-1e-3", -0.001),
        ("boolean", "true", True),
        ("boolean", "No", False),
        ("boolean", "1", True),
        ("boolean", "0", False),
        ("string", "", ""),
        ("string", "a=b $(reboot)\n#SBATCH --x", "a=b $(reboot)\n#SBATCH --x"),
        ("string", " 1 ", " 1 "),
    ],
)
def test_texts_become_values(kind: str, text: str, expected: Value) -> None:
    values, problems = typed(of_kind(kind), [f"p={text}"])
    assert not problems
    assert (values, type(values["p"])) == ({"p": expected}, type(expected))


@pytest.mark.parametrize(
    ("kind", "text", "what"),
    [
        ("integer", "1.5", '"1.5" is not a whole number'),
        ("integer", "ten", "is not a whole number"),
        ("integer", "9223372036854775808", "too large"),
        ("integer", "1e300", "too large"),
        ("integer", "1e9999", "too large"),
        ("integer", "1e-9999", "is not a whole number"),
        ("integer", "9007199254740993.5", "is not a whole number"),
        ("integer", "", "is not a whole number"),
        ("number", "1,5", "is not a number"),
        ("number", "nan", "is not a number"),
        ("number", "inf", "is not a number"),
        ("number", "1e999", "too large"),
        ("number", "0x10", "is not a number"),
        ("number", "٣", "is not a number"),
        ("number", "9" * 41, "is not a number"),
        ("boolean", "maybe", "is not true or false"),
        ("string", "\udcff", "not UTF-8"),
        ("file", "", "There is no file"),
        ("file", "\0", "There is no file"),
        ("file", "/nowhere/at/all", "There is no file"),
        ("file", "/", "is not a file"),
    ],
)
def test_texts_that_are_no_values(kind: str, text: str, what: str) -> None:
    _, problems = typed(of_kind(kind), [f"p={text}"])
    assert [(each.path, each.line) for each in problems] == [("p", 0)]
    assert what in problems[0].what
    assert problems[0].right


@pytest.mark.parametrize(
    ("kind", "text", "right"),
    [("number", "1e999", "At most about 1.8e308."), ("integer", "1e300", f"At most {2**63 - 1}.")],
)
def test_the_largest_number_that_is_told_is_the_largest(kind: str, text: str, right: str) -> None:
    assert typed(of_kind(kind), [f"p={text}"])[1][0].right == right


def test_all_problems_at_once() -> None:
    words = ["epochs=x", "verbos=1", "note=a", "note=b", "lost", "kind=c"]
    _, problems = typed(METHOD, words)
    assert {(each.path, each.what) for each in problems} == {
        ("note", "It is given twice."),
        ("lost", "It has no =."),
        ("verbos", "The method has no such parameter."),
        ("lr", "It is required, and was not given."),
        ("epochs", '"x" is not a whole number.'),
        ("kind", '"c" is not one of the allowed values.'),
    }
    rights = {each.path: each.right for each in problems}
    assert "Did you mean verbose?" in rights["verbos"]
    assert rights["lr"] == "Give a number (Step size.)."
    assert rights["kind"] == 'One of "a", "b".'


def test_an_allowed_number_is_that_number_and_not_its_text() -> None:
    method = of_kind("number", allowed_values=[1, 0.5])
    assert typed(method, ["p=1.0"])[0] == {"p": 1}
    assert typed(method, ["p=2"])[1]


def test_required_with_a_default_need_not_be_given() -> None:
    assert typed(of_kind("integer", required=True, default=3), []) == ({"p": 3}, [])


def test_a_file_is_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a b.csv").touch()
    assert typed(of_kind("file"), ["p=a b.csv"]) == ({"p": str(tmp_path / "a b.csv")}, [])
    assert typed(of_kind("file", default="w.bin"), [])[0] == {"p": "/m/w.bin"}


@given(st.lists(st.text(max_size=10), max_size=5))
def test_no_words_raise(words: list[str]) -> None:
    values, problems = typed(METHOD, words)
    assert problems or values["lr"] is not None
    json.dumps(values).encode()


SETS = '[{"lr": 0.1},\n {"lr": 2, "epochs": 5.0, "note": "x"}]'
WANTED = [{"lr": 0.1, **REST}, {"lr": 2, **REST, "epochs": 5, "note": "x"}]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sets.json", SETS),
        ("sets", SETS),
        ("sets.jsonl", '{"lr": 0.1}\r\n\r\n{"lr": 2, "epochs": 5.0, "note": "x"}\r\n'),
        ("sets", '{"lr": 0.1}\n{"lr": 2, "epochs": 5.0, "note": "x"}'),
        ("sets.csv", "lr,epochs,note\n0.1,,\n2,5,x\n"),
        ("sets.csv", '\ufeff"lr";"epochs";"note"\r\n0.1;;\r\n\r\n2;5;"x"\r\n'),
        ("sets.tsv", "lr\tepochs\tnote\n0.1\t\t\n2\t5\tx"),
    ],
)
def test_tables(name: str, text: str) -> None:
    assert table(METHOD, text, name) == (WANTED, [])


@pytest.mark.parametrize(
    ("name", "text", "path", "line", "what"),
    [
        ("a.json", SETS.replace("5.0", '"5"'), "$[1].epochs", 2, "not of the type integer"),
        ("a.json", SETS.replace("epochs", "epoch"), "$[1].epoch", 2, "no such parameter"),
        ("a.json", '[{"lr": 1},\n3]', "$[1]", 2, "not an object"),
        ("a.json", '[{"lr": 1},\n{}]', "$[1].lr", 2, "required"),
        ("a.json", '{"lr": 1}', "$", 1, "not a list"),
        ("a.json", "[]", "$", 1, "no parameter set"),
        ("a.csv", "", "$", 1, "no parameter set"),
        ("a.jsonl", '{"lr": 1}\n\n{"lr": null}', "$[1].lr", 3, "not of the type number"),
        ("a.jsonl", '{"lr": 1}\n[]', "$[1]", 2, "not an object"),
        ("a.jsonl", '{"lr": 1}\n{"lr": 1', "$", 2, "The file ends"),
        ("a.csv", "lr\n1\nx\n", "$[1].lr", 3, "is not a number"),
        ("a.csv", "lr,note\n1,a\n2\n", "$[1]", 3, "1 cell, and the header 2"),
        ("a.csv", 'lr,note\n1,"a\nb"\nx,c\n', "$[1].lr", 4, "is not a number"),
        ("a.csv", 'lr,note\n1,"a\n', "$", 2, "It is no CSV"),
        ("a.csv", "lr,lr\n1,2\n", "$", 1, "comes twice"),
        ("a.csv", "lr,\n1,2\n", "$", 1, "Column 2 has no name"),
        ("a.csv", "lr,epoch\n1,\n", "$", 1, 'The column "epoch": The method has no such'),
    ],
)
def test_a_wrong_table(name: str, text: str, path: str, line: int, what: str) -> None:
    _, problems = table(METHOD, text, name)
    assert (problems[0].path, problems[0].line) == (path, line)
    assert what in problems[0].what


def test_a_column_that_is_no_parameter_is_told_once_and_hides_nothing() -> None:
    text = "lr,epoch\n" + "1,2\n" * 100 + "x,2\n"
    _, problems = table(METHOD, text, "a.csv")
    assert [(each.path, each.line) for each in problems] == [("$", 1), ("$[100].lr", 102)]
    assert "Did you mean epochs?" in problems[0].right


def test_problems_of_a_table_have_an_end() -> None:
    text = "lr\n" + "x\n" * 1000
    assert len(table(METHOD, text, "a.csv")[1]) == MOST_PROBLEMS


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), min_size=1)


@given(st.lists(CELLS, min_size=1))
def test_texts_go_through_a_csv_unchanged(notes: list[str]) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerows([["note", "lr"], *([note, "1"] for note in notes)])
    values, problems = table(METHOD, file.getvalue(), "a.csv")
    assert not problems
    assert [each["note"] for each in values] == notes


@given(st.text(), st.sampled_from(["a", "a.csv", "a.json", "a.jsonl", "a.tsv"]))
def test_no_table_raises(text: str, name: str) -> None:
    values, problems = table(METHOD, text, name)
    assert values or problems
    assert all(each.line >= 1 for each in problems)


@pytest.mark.parametrize(
    ("modes", "counts"),
    [
        ([], [0, 1, 2]),
        (["single_file"], [1]),
        (["multi_file"], [1, 2]),
        (["params_only"], [0]),
        (["single_file", "none"], [0, 1]),
    ],
)
def test_how_many_input_files(modes: list[str], counts: list[int]) -> None:
    method = valid(**({"input_modes": modes} if modes else {}))
    assert [count for count in range(3) if count_fits(method, count) is None] == counts


@pytest.mark.parametrize(
    ("modes", "count", "right"),
    [
        (["single_file"], 0, "Give it: --input FILE"),
        (["single_file"], 2, "Give --input once."),
        (["single_file", "none"], 2, "Give --input once."),
        (["multi_file"], 0, "Give it: --input FILE"),
        (["params_only"], 1, "Leave --input out."),
    ],
)
def test_what_would_be_right_of_input_files(modes: list[str], count: int, right: str) -> None:
    problem = count_fits(valid(input_modes=modes), count)
    assert problem is not None
    assert problem.right == right


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "may not read" in typed(of_kind("file"), [f"p={tmp_path}/a"])[1][0].what


def test_a_number_of_json_that_was_rounded_is_no_whole_one() -> None:
    method = of_kind("integer")
    assert table(method, '[{"p": 9007199254740991.0}]', "x.json")[0] == [{"p": 2**53 - 1}]
    assert table(method, '[{"p": 9007199254740993}]', "x.json")[0] == [{"p": 2**53 + 1}]
    _, problems = table(method, '[{"p": 9007199254740993.0}]', "x.json")
    assert "not of the type integer" in problems[0].what


def test_rows_of_a_wrong_table_are_named_in_their_order() -> None:
    text = "n,s\n1,a\nviele,b\n3\n4,c,d\nx,e\n"
    lr = valid(parameters=[{"name": "n", "type": "integer"}, {"name": "s", "type": "string"}])
    _, problems = table(lr, text, "a.csv")
    assert [(each.line, each.path) for each in problems] == [
        (3, "$[1].n"), (4, "$[2]"), (5, "$[3]"), (6, "$[4].n"),
    ]  # fmt: skip
