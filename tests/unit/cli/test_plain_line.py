from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.cli.plain_line import Options, read
from dshpc_setup.cli.submission import parsed

KNOWN = Options({"--json": "json"}, {"--time": "time"}, {"-p": "params", "--input": "inputs"})


def test_options_of_each_kind_and_the_words_between() -> None:
    assert read(["a", "--json", "-p", "x=1", "--time=2h", "-p", "y=-2", "b"], KNOWN) == (
        {"json": True, "params": ("x=1", "y=-2"), "time": "2h"},
        ["a", "b"],
    )
    assert read(["--time=-1"], KNOWN) == ({"time": "-1"}, [])


@pytest.mark.parametrize(
    "line",
    [
        ["--nothing"],
        ["--time"],
        ["--time", "--json"],
        ["--time="],
        ["--time", "1", "--time", "2"],
        ["--json=yes"],
        ["--json", "a", "--json"],
        ["-p=x"],
        ["-h"],
    ],
)
def test_what_is_not_well_formed_is_typers(line: list[str]) -> None:
    assert read(line, KNOWN) is None


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_a_command_is_left_as_it_is(before: list[str], command: list[str]) -> None:
    assert read(["--json", "--", *command], KNOWN, command=True) == ({"json": True}, command)
    assert read(["x", *before], KNOWN, command=True) == ({}, ["x", *before])


def test_lines_of_submissions() -> None:
    line = parsed(["method", "run", "train", "-p", "a=1", "--wait", "--time", "2h"])
    assert line is not None
    assert (line.command, line.asked.name, line.asked.parameters) == (
        "method run",
        "train",
        ("a=1",),
    )
    assert (line.wait, line.json, line.asked.time) == (True, False, "2h")
    line = parsed(["run", "--gpus", "1", "--name", "x", "--", "python3", "-c", "--json"])
    assert line is not None
    assert (line.asked.command, line.json) == (("python3", "-c", "--json"), False)
    line = parsed(["run", "python3", "--gpus", "1"])
    assert line is not None
    assert line.asked.command == ("python3", "--gpus", "1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["method", "run"],
        ["method", "run", "a", "b"],
        ["method", "check", "a", "--wait"],
        ["method", "list"],
        ["run"],
        ["run", "--help"],
        ["run", "--gpux", "1", "--", "x"],
    ],
)
def test_other_lines_are_typers(arguments: list[str]) -> None:
    assert parsed(arguments) is None
