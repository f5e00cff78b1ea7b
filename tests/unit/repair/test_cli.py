"""`--fix` on the screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import repair as screen
from dshpc_setup.errors import Exit
from dshpc_setup.repair import Outcome
from tests.unit.diagnose.known import known
from tests.unit.engine.fake import Listener
from tests.unit.repair.test_run import NAME, all_of, engine, repaired_now


def go(*, yes: bool, dry_run: bool = False) -> Outcome:
    return screen.run(
        engine(),
        None,
        known(NAME),
        all_of(),
        Listener(),
        again=repaired_now,
        dry_run=dry_run,
        yes=yes,
    )


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "is_interactive", lambda: False)


def test_with_yes_it_needs_no_terminal(nobody: None, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = go(yes=True)
    screen.print_outcome(outcome)
    said = capsys.readouterr()
    assert "Gone: DSH-DK-009" in said.out
    assert said.err == ""
    assert screen.exit_code(outcome) == Exit.OK


def test_without_it_the_refusal_goes_to_stderr(
    nobody: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSHPC_COMMAND", str(Path.cwd() / "dshpc"))
    outcome = go(yes=False)
    screen.print_outcome(outcome)
    said = capsys.readouterr()
    assert "Gone" not in said.out
    assert "./dshpc doctor --fix --yes" in said.err  # as it can be called from here
    assert screen.exit_code(outcome) == Exit.ERROR


def test_a_dry_run_prints_the_plan(nobody: None, capsys: pytest.CaptureFixture[str]) -> None:
    screen.print_outcome(go(yes=False, dry_run=True))
    out = capsys.readouterr().out
    assert "sudo systemctl restart docker" in out
    assert out.endswith("Nothing was changed (--dry-run).\n")


@pytest.mark.parametrize(("signals", "code"), [([], 130), ([15], 143)])
def test_an_interrupted_run_ends_with_its_signal(
    signals: list[int], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_ended_by", signals)
    assert screen.exit_code(Outcome((), (), {}, interrupted=True)) == code
