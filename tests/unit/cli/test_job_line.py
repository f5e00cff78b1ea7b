"""`dshpc job ...`: what is read without typer, and what reaches the container."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import cli
from dshpc_setup.cli import exec as cli_exec
from dshpc_setup.cli import job_line
from dshpc_setup.jobs import command_words


@pytest.mark.parametrize(
    ("line", "words", "folder"),
    [
        ("list", ["list"], None),
        ("list --all --json", ["list", "--all", "--json"], None),
        ("show 17 --dir /x", ["show", "17"], "/x"),
        ("show --dir=/x 17", ["show", "17"], "/x"),
        ("logs 17 -f --task 3", ["logs", "17", "-f", "--task", "3"], None),
        ("cancel 1 2_3 --json", ["cancel", "1", "2_3", "--json"], None),
    ],
)
def test_lines(line: str, words: list[str], folder: str | None) -> None:
    assert job_line.parsed(line.split()) == (words, folder)


@pytest.mark.parametrize(
    "line",
    [
        "", "help", "list 17", "list --al", "show", "show 1 2", "show --help", "logs 1 --task x",
        "logs 1 --task", "cancel", "show 1 --dir", "show 1 --dir -x", "cancel -- -1", "--help",
    ],
)  # fmt: skip
def test_what_typer_judges(line: str) -> None:
    assert job_line.parsed(line.split()) is None


@given(st.lists(st.sampled_from(["list", "show", "logs", "cancel", "-f", "--json", "--all", "17",
                                 "--task", "3", "--dir", "/x", "-x", "--task=4"]), max_size=6))  # fmt: skip
def test_what_is_passed_on_is_understood_inside(line: list[str]) -> None:
    found = job_line.parsed(line)
    if found is not None:
        command_words.parsed([*found[0][1:], "--work", "/w"])


def test_one_call_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".dshpc").mkdir()
    runtime = {"container": "c", "work": str(tmp_path / "work")}
    (tmp_path / ".dshpc" / "runtime.json").write_text(json.dumps(runtime))
    calls: list[Any] = []

    def run(call: cli_exec.Call) -> int:
        calls.append(call)
        return 7

    monkeypatch.setattr(cli_exec, "run", run)
    assert cli.run(["job", "show", "17", "--dir", str(tmp_path)], "dshpc") == 7
    (call,) = calls
    assert call.argv == ["dshpc-node", "job", "show", "17", "--work", str(tmp_path / "work")]
    assert (call.container, call.mode, call.folder) == ("c", "none", str(tmp_path / "work"))
    ahead = f"DSHPC_UTC_OFFSET_S={time.localtime().tm_gmtoff}"
    assert ["-e", ahead] == (sent := call.client((0, 0, "root"), {}))[sent.index(ahead) - 1 :][:2]


def test_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["job", "list", "--json", "--dir", str(tmp_path)], "dshpc") == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["schema"] == "dshpc.error/1"
    assert "There is no cluster" in said.err
