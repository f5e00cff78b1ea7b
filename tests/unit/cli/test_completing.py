"""What the Tab key offers, and that it never fails, waits or says a word of others' unchecked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import completing
from dshpc_setup.cli.manual import commands
from dshpc_setup.machine import CommandResult
from dshpc_setup.machine.local import LocalMachine


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DSHPC_COMPLETION_S", raising=False)
    (tmp_path / ".dshpc").mkdir()
    runtime = {"container": "lab-slurm", "work": str(tmp_path / "work"), "prefix": "lab"}
    (tmp_path / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    (tmp_path / "methods/train").mkdir(parents=True)
    (tmp_path / "methods/train/method.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(*words: str) -> list[str]:
    return [word for word, _ in completing.answers(words)]


def test_commands_and_those_below() -> None:
    assert offered("j") == ["job"]
    assert set(offered("")) == {each.words[0] for each in commands()}
    assert offered("job", "") == ["list", "show", "logs", "cancel", "clean"]


def test_options() -> None:
    assert "--older-than" in offered("job", "clean", "--")
    assert offered("--v") == ["--version"]
    assert offered("job", "show", "--j") == ["--json"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("explain", "DSH-NV-00"), "DSH-NV-002"),
        (("doctor", "--only", "DSH-SL-0"), "DSH-SL-012"),
        (("config", "set", "iso"), "isolation"),
        (("config", "unset", "gpu", "iso"), "isolation"),
        (("method", "run", "tr"), "train"),
        (("method", "show", "vec"), "vector-add"),
        (("run", "--target", ""), "lab"),
        (("srun", "-w", "lo"), "localhost"),
        (("configure", "--simulate", "h1"), "h100"),
    ],
)
def test_names_of_things(words: tuple[str, ...], expected: str) -> None:
    assert expected in offered(*words)


def test_a_value_and_a_time_are_nobodys_names() -> None:
    assert offered("config", "set", "isolation", "iso") == []
    assert offered("srun", "-t", "") == []
    assert offered("detect", "--only", "DSH") == []


class _Slurm:
    def __init__(self, said: CommandResult) -> None:
        self.said = said
        self.asked: list[tuple[tuple[str, ...], float]] = []

    def run(self, argv: Any, *, deadline_s: float, **__: Any) -> CommandResult:
        self.asked.append((tuple(argv), deadline_s))
        return self.said


def _asked(monkeypatch: pytest.MonkeyPatch, state: Any, code: int | None, out: str) -> _Slurm:
    slurm = _Slurm(CommandResult((), state, code, out, "", 1.0))
    monkeypatch.setattr(LocalMachine, "run", lambda _, argv, **options: slurm.run(argv, **options))
    return slurm


def test_jobs_are_asked_of_slurm_with_a_short_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = _asked(monkeypatch, "present", 0, "17 RUNNING train\n18 PENDING \x1b[31mx\nnoise\n")
    assert completing.answers(["job", "cancel", "1"]) == [
        ("17", "running train"),
        ("18", "pending \x1b[31mx"),
    ]
    ((argv, deadline),) = slurm.asked
    assert "squeue" in argv
    assert not any(word.startswith("DSHPC_WAIT_S") for word in argv)
    assert deadline <= 0.2


def test_a_slow_engine_can_be_given_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = _asked(monkeypatch, "present", 0, "")
    monkeypatch.setenv("DSHPC_COMPLETION_S", "2")
    completing.answers(["scancel", ""])
    assert [deadline for _, deadline in slurm.asked] == [2]


def test_a_dead_engine_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _asked(monkeypatch, "timeout", None, "17 RUNNING train\n")
    assert completing.answers(["scancel", ""]) == []


def printed(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> tuple[int, str]:
    written: list[bytes] = []
    monkeypatch.setattr("os.write", lambda _, data: written.append(data))
    code = cli.run(["__complete", "--", *words], "dshpc")
    return code, b"".join(written).decode()


def test_what_is_printed_commands_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    _asked(monkeypatch, "present", 0, "18 PENDING \x1b[31m\ttab\n")
    assert printed(monkeypatch, ["job", "show", ""]) == (0, "18\tpending ?[31m?tab\n")


def test_no_answer_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".dshpc/runtime.json").unlink()
    assert printed(monkeypatch, ["job", "show", ""]) == (1, "")
    assert printed(monkeypatch, ["record", ""]) == (1, "")
    assert capsys.readouterr().err == ""
