"""`dshpc dashboard`: what it needs, what it says, and how it asks the container."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import dashboard
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import CommandResult
from dshpc_setup.project.folder import Project


class _Machine:
    def __init__(self) -> None:
        self.asked: list[tuple[list[str], dict[str, Any]]] = []

    def run(self, argv: Sequence[str], **more: Any) -> CommandResult:
        self.asked.append(([*argv], more))
        return CommandResult(tuple(argv), "present", 0, "", "", 1.0)


RUNTIME = {"container": "hpc-slurm", "work": "/home/ada/work", "prefix": "hpc"}


def asked(words: Sequence[str], **more: Any) -> tuple[list[str], dict[str, Any]]:
    machine = _Machine()
    dashboard._inside(machine, RUNTIME)(words, deadline_s=5.0, **more)  # type: ignore[arg-type]
    ((argv, given),) = machine.asked
    return argv, given


def test_jobs_are_asked_for_as_the_calling_user() -> None:
    argv, given = asked(["dshpc-node", "job", "list", "--json"])
    assert argv[:2] == ["docker", "exec"]
    assert "-i" not in argv
    assert argv[-4:] == ["dshpc-node", "job", "list", "--json"]
    assert "/usr/local/lib/dshpc/as-user" in argv
    assert given == {"deadline_s": 5.0, "stdin": None, "on_line": None}


def test_a_request_goes_in_by_its_standard_input() -> None:
    said: list[str] = []
    heard: Callable[[str], None] = said.append
    argv, given = asked(["dshpc-node", "job", "submit"], stdin="{}", on_line=heard)
    assert "-i" in argv
    assert "DSHPC_WORK=/home/ada/work" in argv
    assert given == {"deadline_s": 5.0, "stdin": "{}", "on_line": heard}


def test_slurms_commands_are_slurms() -> None:
    argv, _ = asked(["scontrol", "requeue", "3"])
    assert argv[-3:] == ["scontrol", "requeue", "3"]


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "python_multipart"])
def test_without_its_packages_it_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(DshpcError) as raised:
        dashboard.serve(Project.__new__(Project), None, port=0, listen="127.0.0.1", browser=False)
    assert raised.value.brief == "The packages of the dashboard are not installed."
    assert missing in raised.value.details
    assert raised.value.fixes[0].command == "pip install 'dshpc-setup[dashboard]'"


def test_other_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["dashboard", "--port", "70000"], "dshpc") == 64
    assert "65535" in capsys.readouterr().err
