"""Which command lines of `dshpc doctor` are read without typer, and that nothing differs for it."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import cli
from dshpc_setup.checkup import with_inside
from dshpc_setup.cli import app, doctor_line
from dshpc_setup.cli.checking import DoctorOptions
from dshpc_setup.cli.doctor_line import Line, look, parsed
from dshpc_setup.engine.inspecting import Answer
from dshpc_setup.machine import CommandResult, Ended
from dshpc_setup.project.folder import Project
from tests.unit.cli.command_lines import any_words, well_formed
from tests.unit.diagnose.known import known
from tests.unit.engine.fake import FakeMachine
from tests.unit.machine.in_place import InPlace

HEALTHY = str(Path(__file__).parents[2] / "machines" / "workstation-rtx4090")

_COMMAND: Any = typer.main.get_command(app.app).commands["doctor"]  # type: ignore[attr-defined]
_SWITCHES = ["--json", "--verbose", "-v", "--strict"]
_VALUED = ["--only", "--skip", "--junit", "--dir", "--machine"]
_CHANGING = ["--fix", "--dry-run", "--yes", "-y", "--list-checks", "--bundle", "--bundle=x"]
_VALUES = ["gpu", "gpu,DSH-NV-*", "report.xml", "/", ".", "~", "a b", "x=y"]
_ODD = ["", "-", "--", "-h", "--help", "-j", "-vv", "--no-json", "--jsonx", "x", "-1", "--only="]
_WORDS = any_words(_SWITCHES, _VALUED, _VALUES, _ODD + _CHANGING)
_WELL_FORMED = well_formed(_SWITCHES, _VALUED, _VALUES)


def as_typer_reads(arguments: list[str]) -> Line | None:
    """The same from the values that the command is called with; None where typer does not call it."""
    try:
        found = dict(_COMMAND.make_context("doctor", list(arguments)).params)
    except Exception:  # noqa: BLE001 -- any of the parser's
        return None
    assert not any(found[name] for name in ("fix", "dry_run", "bundle", "yes", "list_checks"))
    asked = DoctorOptions(
        found["json_output"],
        found["verbose"],
        found["strict"],
        found["junit"],
        tuple(found["only"] or ()),
        tuple(found["skip"] or ()),
    )
    return Line(asked, found["dir"], found["machine"])


@given(st.one_of(_WORDS, _WELL_FORMED))
def test_the_quick_reader_agrees_with_typer_or_declines(arguments: list[str]) -> None:
    mine = parsed(arguments)
    if mine is not None:
        assert as_typer_reads(arguments) == mine


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], ["--only"], ["--bogus"], ["--json", "--json"], ["-v", "--verbose"], ["x"],
     ["--"], ["--json=1"], ["--only", "--json"], ["--fix"], ["--bundle", "x"], ["--list-checks"],
     ["--yes"], ["--dir", "a", "--dir", "b"]],
)  # fmt: skip
def test_what_it_is_not_sure_of_and_what_changes_something_goes_to_typer(
    arguments: list[str],
) -> None:
    assert parsed(arguments) is None


def test_a_plain_line() -> None:
    assert parsed([]) == Line(DoctorOptions())
    line = ["--json", "-v", "--only=gpu", "--only", "host", "--dir", "/p", "--machine=m"]
    asked = DoctorOptions(json=True, verbose=True, only=("gpu", "host"))
    assert parsed(line) == Line(asked, Path("/p"), Path("m"))
    assert asdict(DoctorOptions()) == asdict(as_typer_reads([]).asked)  # type: ignore[union-attr]


def test_typer_is_not_imported_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DSHPC_DIR", raising=False)
    monkeypatch.setitem(sys.modules, "dshpc_setup.cli.app", None)  # importing it fails
    assert cli.run(["doctor", "--machine", HEALTHY, "--json"], "dshpc") == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "dshpc.doctor/1"


def test_what_it_declines_is_done_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["doctor", "--list-checks", "--json"], "dshpc") == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "dshpc.checks/1"


def test_only_what_ends_soon_goes_without_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "disable", lambda: done.append("disable"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))

    def run(words: list[str], _: str) -> int:
        done.append(words[0])
        return 3

    monkeypatch.setattr(cli, "run", run)
    for word in ("doctor", "gpus", "up"):
        monkeypatch.setattr(sys, "argv", ["dshpc", word, "--json"])
        assert cli.main() == 3
    assert cli.configure_environment_main() == 3
    soon = (("disable", word, "freeze") for word in ("up", "configure"))
    assert done == ["disable", "doctor", "freeze", "gpus", *(each for one in soon for each in one)]


@dataclass
class Engine(InPlace):
    """Notes what it is asked, and says nothing of use."""

    def __post_init__(self) -> None:
        super().__init__("/nonexistent")
        self.asked: list[str] = []
        self.apart_of: list[str] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        self.asked.append(" ".join(argv))
        return CommandResult(tuple(argv), "timeout", None, "", "", 1.0)

    def apart(self, questions: Mapping[str, Any], **more: Any) -> Mapping[str, Ended]:
        self.apart_of += questions
        return super().apart(questions, **more)


OBSERVE = "docker exec p-slurm dshpc-node observe"


@pytest.mark.parametrize(
    ("busy", "answer", "problem", "again"),
    [
        (True, "timeout", None, [3.0]),
        (True, "present", None, []),
        (False, "timeout", None, []),
        (True, "timeout", "The container p-slurm is paused.", []),
    ],
)
def test_a_late_answer_of_the_container_is_waited_for_on_a_busy_machine(
    busy: bool, answer: str, problem: str | None, again: list[float]
) -> None:
    files = {"/proc/pressure/cpu": "some avg10=63.39 avg60=1.00 avg300=0.00 total=9"}
    found = known("vm-no-gpu")
    found = replace(found, observed=replace(found.observed, inside=None, inside_problem=problem))
    said = Answer(CommandResult((), answer, None, "", "", 1.0), 5.0)  # type: ignore[arg-type]
    asked: list[float] = []

    def ask(slow: float) -> Ended:
        asked.append(slow)
        return Ended("timeout", (), None, 1.0)

    with_inside(
        FakeMachine(files=files if busy else {}), found, Ended("present", (said,), None, 1.0), ask
    )
    assert asked == again


def test_the_container_is_asked_before_all_else_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project, engine = Project(tmp_path), Engine()
    project.prepare()
    monkeypatch.setattr(doctor_line, "seen_machine", lambda *_: engine)
    line = Line(DoctorOptions(json=True), tmp_path)
    look(line)
    assert "inside" not in engine.apart_of  # no cluster was set up
    assert OBSERVE not in engine.asked
    project.write_json(".dshpc/runtime.json", {"container": "p-slurm"})
    engine = Engine()
    look(line)
    assert engine.apart_of[:2] == ["inside", "container"]
    assert engine.asked.count(OBSERVE) == 1
    capsys.readouterr()
