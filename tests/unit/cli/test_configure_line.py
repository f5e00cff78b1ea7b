"""Which command lines of configure-environment are read without typer, and that nothing differs for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import cli
from dshpc_setup.cli import app, configure_line
from dshpc_setup.cli.configure_line import Line, parsed
from dshpc_setup.settings import DECLARATIONS
from tests.unit.cli.command_lines import any_words, well_formed

H100 = str(Path(__file__).parents[2] / "machines" / "workstation-rtx4090")
_COMMAND: Any = typer.main.get_command(app.app).commands["configure"]  # type: ignore[attr-defined]
_SWITCHES = [option for each in _COMMAND.params if each.is_flag for option in each.opts]
_VALUED = [option for each in _COMMAND.params if not each.is_flag for option in each.opts]
_VALUES = ["h100:2", "builtin", "/", ".", "~", "a b", "x=y", "1"]
_ODD = [
    "",
    "-",
    "--",
    "-h",
    "--help",
    "-yy",
    "--no-yes",
    "--simulatex",
    "x",
    "-1",
    "--dir=",
    "--sim",
]
_WORDS = any_words(_SWITCHES, _VALUED, _VALUES, _ODD)
_WELL_FORMED = well_formed(_SWITCHES, _VALUED, _VALUES)


def as_typer_reads(arguments: list[str]) -> Line | None:
    """The same from the values that the command is called with; None where typer does not call it."""
    try:
        found = dict(_COMMAND.make_context("configure", list(arguments)).params)
    except Exception:  # noqa: BLE001 -- any of the parser's
        return None
    assert not found.pop("version")
    found["json"] = found.pop("json_output")
    return Line(flags={each.name: found.pop(each.name) for each in DECLARATIONS}, **found)


@given(st.one_of(_WORDS, _WELL_FORMED))
def test_the_quick_reader_agrees_with_typer_or_declines(arguments: list[str]) -> None:
    mine = parsed(arguments)
    if mine is not None:
        assert as_typer_reads(arguments) == mine


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["-V"], ["--dir"], ["--bogus"], ["--json", "--json"], ["x"], ["--"],
     ["--json=1"], ["--simulate", "--json"], ["--dir", "a", "--dir", "b"], ["--simulate="]],
)  # fmt: skip
def test_what_it_is_not_sure_of_goes_to_typer(arguments: list[str]) -> None:
    assert parsed(arguments) is None


def test_a_plain_line() -> None:
    none: dict[str, str | None] = {each.name: None for each in DECLARATIONS}
    assert parsed([]) == Line(flags=none)
    line = ["-y", "--engine", "builtin", "--simulate=h100:2", "--dir", "p", "--no-start"]
    flags = {**none, "engine": "builtin", "simulate": "h100:2"}
    assert parsed(line) == Line(yes=True, dir=Path("p"), no_start=True, flags=flags)


def test_typer_is_not_imported_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dshpc_setup.cli.app", None)  # importing it fails
    line = ["configure", "--machine", H100, "--dir", str(tmp_path)]
    assert cli.run(line, "configure-environment") == 0
    assert "would-create" in capsys.readouterr().out


def test_ctrl_c_while_it_is_told_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Line, finish: Any) -> None:
        finish(2)
        raise KeyboardInterrupt

    monkeypatch.setattr(configure_line, "run", run)
    assert cli.run(["configure"], "configure-environment") == 2


def test_ctrl_c_before_that_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(configure_line, "run", run)
    assert cli.run(["configure"], "configure-environment") == 130
