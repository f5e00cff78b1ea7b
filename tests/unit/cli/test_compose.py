"""The command line of `dshpc compose patch`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from dshpc_setup import cli

MACHINE = str(Path(__file__).parents[2] / "machines" / "mi210x4-xgmi")
TEXT = "services:\n  train:\n    image: rocm/pytorch\n"


@pytest.fixture(autouse=True)
def _here(nowhere: None) -> None:
    Path("c.yml").write_text(TEXT)


def run(*arguments: str) -> int:
    return cli.run(["compose", "patch", *arguments], "dshpc")


def test_there_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("c.yml", "--mechanism", "devices", "--machine", MACHINE, "--yes") == 0
    said = capsys.readouterr().out
    assert "Patched: service train in c.yml (devices)." in said
    assert "The old text is in " in said
    assert "renderD128" in Path("c.yml").read_text()
    assert run("c.yml", "--remove", "--machine", MACHINE, "--yes") == 0
    assert Path("c.yml").read_text() == TEXT


def test_a_dry_run_with_its_diff(capsys: pytest.CaptureFixture[str]) -> None:
    wish = ["c.yml", "--mechanism", "cdi", "--machine", MACHINE, "--dry-run", "--diff"]
    assert run(*wish) == 0
    said = capsys.readouterr().out
    assert '+              device_ids: ["amd.com/gpu=all"]' in said
    assert "Nothing was changed (--dry-run)." in said
    assert Path("c.yml").read_text() == TEXT


def test_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    wish = ["c.yml", "--mechanism", "cdi", "--machine", MACHINE, "--json", "--yes", "--diff"]
    assert run(*wish) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["schema"], found["action"]) == ("dshpc.compose-patch/1", "patched")
    assert found["diff"] in err


def test_without_a_terminal_and_yes_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("c.yml", "--mechanism", "cdi", "--machine", MACHINE) == 64
    assert "--yes" in capsys.readouterr().err
    assert Path("c.yml").read_text() == TEXT


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_the_question_and_the_diff_come_first_and_leave_stdout_to_the_object(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dshpc_setup.cli.command_line.is_interactive", lambda: True)
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    assert run("c.yml", "--mechanism", "cdi", "--machine", MACHINE, "--json", "--diff") == 64
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["brief"] == "c.yml was not changed."
    assert err.index("+++ c.yml (new)") < err.index("[y/N]") < err.index("dshpc: c.yml was not")
    assert Path("c.yml").read_text() == TEXT


@pytest.mark.parametrize(
    ("wish", "code", "word"),
    [
        (["c.yml", "--remove", "--mechanism", "cdi"], 64, "Leave them out"),
        (["c.yml", "--mechanism", "gpus"], 64, "device-request"),
        (["c.yml", "--mechanism", "cdi", "--devices", "$"], 64, "--devices 0,2"),
        (
            ["c.yml", "--mechanism", "cdi", "--service", "trian", "--machine", MACHINE],
            64,
            "'train'",
        ),
        (["none.yml", "--mechanism", "cdi", "--machine", MACHINE], 64, "no file none.yml"),
        (["bad.yml", "--mechanism", "cdi", "--machine", MACHINE], 2, "bad.yml:1:"),
    ],
)
def test_what_is_refused(
    wish: list[str], code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.yml").write_text("services: [\n")
    assert run(*wish) == code
    assert word in capsys.readouterr().err
