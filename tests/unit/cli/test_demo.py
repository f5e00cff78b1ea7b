"""`dshpc demo`: what it types, and that it removes what it made however it ends."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import demo
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.project.folder import RUNTIME


class Typed:
    """A machine on which configure makes the folder's files, and all else answers as it is told."""

    def __init__(self, answer: Callable[[tuple[str, ...]], int | BaseException]) -> None:
        self.answer = answer
        self.calls: list[tuple[str, ...]] = []
        self.env: list[dict[str, str]] = []

    def run(self, argv: Any, *, env: Any, cwd: str, on_line: Any, **_: Any) -> CommandResult:
        words = tuple(argv[1:])
        self.calls.append(words)
        self.env.append(env)
        assert Path(cwd).is_dir()
        if words[0] == "configure":
            path = Path(words[words.index("--dir") + 1]) / RUNTIME
            path.parent.mkdir()
            path.write_text("{}")
        answer = self.answer(words)
        if isinstance(answer, BaseException):
            raise answer
        on_line("said \x1b[2J")
        return CommandResult(tuple(argv), "present", answer, "", "", 1.0)


def fine(words: tuple[str, ...]) -> int:
    return 2 if words[0] == "run" else 0


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Typed]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("DSHPC_PREFIX", raising=False)

    def made(answer: Callable[[tuple[str, ...]], int | BaseException] = fine) -> Typed:
        found = Typed(answer)
        monkeypatch.setattr(LocalMachine, "run", lambda _, argv, **more: found.run(argv, **more))
        return found

    return made


def test_all_of_it(
    typed: Callable[..., Typed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = typed()
    assert cli.run(["demo"], "dshpc") == 0
    first, *steps, last = there.calls
    assert first[:4] == ("configure", "--yes", "--simulate", "h100:2")
    assert first[first.index("--prefix") + 1].startswith("dshpc-demo-")
    assert first[first.index("--work") + 1] == f"{first[first.index('--dir') + 1]}/work"
    assert steps == [step.words for step in demo.STEPS]
    assert 4 <= len(steps) <= 5
    assert last[:4] == ("destroy", "--yes", "--stop-jobs", "--image")
    assert {env.get("DSHPC_DIR") for env in there.env[1:]} == {str(Path(last[-1]))}
    assert list(tmp_path.iterdir()) == []
    out = capsys.readouterr().out
    assert "$ dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES\nsaid ?[2J\n" in out


@pytest.mark.parametrize("at", ["configure", "srun", "method"])
def test_it_is_removed_where_a_step_fails(
    typed: Callable[..., Typed], tmp_path: Path, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    there = typed(lambda words: 1 if words[0] == at else fine(words))
    assert cli.run(["demo", "--yes"], "dshpc") == 2
    assert there.calls[-1][0] == "destroy"
    assert there.calls[-2][0] == at
    assert list(tmp_path.iterdir()) == []
    assert "dshpc doctor" in capsys.readouterr().err


def test_it_is_removed_on_ctrl_c(typed: Callable[..., Typed], tmp_path: Path) -> None:
    there = typed(lambda words: KeyboardInterrupt() if words[0] == "srun" else fine(words))
    with pytest.raises(KeyboardInterrupt):
        demo.Tour(waits=False).run()
    assert there.calls[-1][0] == "destroy"
    assert list(tmp_path.iterdir()) == []


def test_before_anything_is_made_only_the_folder_goes(
    typed: Callable[..., Typed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = typed()

    def ended(*_: Any, **__: Any) -> CommandResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalMachine, "run", ended)
    with pytest.raises(KeyboardInterrupt):
        demo.Tour(waits=False).run()
    assert there.calls == []
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_removed_is_told_with_the_command_and_stays(
    typed: Callable[..., Typed], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed(lambda words: 2 if words[0] == "destroy" else fine(words))
    demo.Tour(waits=False).run()
    (left,) = tmp_path.iterdir()
    assert f"dshpc destroy --yes --stop-jobs --image --dir {left}" in capsys.readouterr().out


def test_a_refusal_that_hangs_is_no_refusal(typed: Callable[..., Typed]) -> None:
    there = typed()
    run = there.run

    def hangs(argv: Any, **more: Any) -> CommandResult:
        done = run(argv, **more)
        return CommandResult(done.argv, "timeout", None, "", "", 1.0) if argv[1] == "run" else done

    there.run = hangs  # type: ignore[method-assign]
    with pytest.raises(DshpcError, match="ended early"):
        demo.Tour(waits=False).run()


def test_it_waits_for_enter_on_a_terminal(
    typed: Callable[..., Typed], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed()
    entered: list[int] = []

    def enter() -> str:
        entered.append(1)
        return ""

    monkeypatch.setattr("builtins.input", enter)
    demo.Tour(waits=True).run()
    assert len(entered) == 1 + len(demo.STEPS)
