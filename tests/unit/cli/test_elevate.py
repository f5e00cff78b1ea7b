from __future__ import annotations

import os
from typing import Any, ClassVar

import pytest

from dshpc_setup.cli import elevate
from dshpc_setup.engine.refusals import EngineDeniedError
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult
from dshpc_setup.terminal.reporter import Silent

DENIED = EngineDeniedError("Docker runs, but ada may not use it")


class Sudo:
    """An ordinary user with or without a sudo that needs no password."""

    uid = 1000
    env: ClassVar = {"DSHPC_PREFIX": "lab", "HTTPS_PROXY": "http://u:secret@p", "HOME": "/h"}

    def __init__(self, works: bool) -> None:
        self.works = works

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}"

    def run(self, argv: list[str], *, deadline_s: float, **_: Any) -> CommandResult:
        assert argv == ["sudo", "-n", "true"]
        return CommandResult(tuple(argv), "present", 0 if self.works else 1, "", "", 1.0)


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda _, argv: seen.append(argv))
    return seen


def go(error: DshpcError | None, works: bool, answer: bool, interactive: bool = False) -> None:
    machine: Any = Sudo(works)
    elevate.go_on_with_sudo(machine, error, Silent(answer), interactive=interactive)


def test_after_a_yes_the_same_command_runs_through_sudo(became: list[list[str]]) -> None:
    go(DENIED, works=True, answer=True)
    (argv,) = became
    assert argv[:4] == ["sudo", "-n", "--preserve-env=DSHPC_PREFIX,HTTPS_PROXY", "--"]
    assert "secret" not in " ".join(argv)  # a value would stand in the process list


def test_a_password_is_asked_for_on_a_terminal_only(became: list[list[str]]) -> None:
    go(DENIED, works=False, answer=True)
    assert became == []
    go(DENIED, works=False, answer=True, interactive=True)
    assert became[0][:2] == ["sudo", "--preserve-env=DSHPC_PREFIX,HTTPS_PROXY"]


def test_nothing_happens_unasked_or_for_another_reason(became: list[list[str]]) -> None:
    go(DENIED, works=True, answer=False)
    go(DshpcError("Something else."), works=True, answer=True)
    go(None, works=True, answer=True)
    assert became == []
