"""`dshpc dashboard`: what it needs, what it says, and how it asks the container."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.builtin import processes
from dshpc_setup.cli import dashboard
from dshpc_setup.cluster import serving
from dshpc_setup.dashboard.serve import Place
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult
from dshpc_setup.project import tokens
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import load
from tests.integration.shown import blocks


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
        dashboard.show(Project.__new__(Project), None, dashboard.Asked())
    assert raised.value.brief == "The packages of the dashboard are not installed."
    assert missing in raised.value.details
    assert raised.value.fixes[0].command == "pip install 'dshpc-setup[dashboard]'"


def _running(project: Project, address: str) -> None:
    """As `up` leaves it, with ourselves for the process."""
    us = processes.of(os.getpid())
    assert us is not None
    note = {"pid": us.pid, "ticks": us.ticks, "boot": us.boot, "address": address}
    project.write_json(serving.DASHBOARD.note, note)


def test_where_one_is_kept_its_address_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    project.prepare()
    _running(project, "127.0.0.1:8410")
    assert dashboard.show(project, None, dashboard.Asked(browser=False)) == 0
    said = capsys.readouterr().out
    token = (tmp_path / tokens.DASHBOARD).read_text().strip()
    assert said == f"http://127.0.0.1:8410/?token={token}\n"
    assert (tmp_path / tokens.DASHBOARD).stat().st_mode & 0o777 == 0o600
    # Who names a port wants one of his own
    served: list[Any] = []

    def serve(*more: Any, **how: Any) -> int:
        served.append((more[2], how))
        return 0

    monkeypatch.setattr(dashboard, "_serve", serve)
    assert dashboard.show(project, None, dashboard.Asked(8411)) == 0
    assert served == [(Place("127.0.0.1", 8411), {"browser": True})]


def test_a_process_that_has_ended_is_none(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.prepare()
    assert serving.address(project, serving.DASHBOARD) is None
    note = {"pid": 1, "ticks": 1, "boot": "another", "address": "127.0.0.1:8410"}
    project.write_json(serving.DASHBOARD.note, note)
    assert serving.address(project, serving.DASHBOARD) is None


@pytest.mark.parametrize("asked", [dashboard.Asked(port=0), dashboard.Asked(listen="::1")])
def test_what_is_kept_listens_where_the_setting_says(
    tmp_path: Path, asked: dashboard.Asked
) -> None:
    with pytest.raises(DshpcError) as raised:
        dashboard.keep(Project(tmp_path), None, asked)
    assert raised.value.exit_code == Exit.USAGE


def test_without_the_setting_none_is_kept(tmp_path: Path) -> None:
    with pytest.raises(DshpcError) as raised:
        dashboard.keep(Project(tmp_path), None, dashboard.Asked())
    assert "dashboard: 127.0.0.1:8410" in raised.value.resolution[0]


@pytest.mark.parametrize("text", ["", "short", "x" * 15, "\x00" * 20, "é" * 20])
def test_a_kept_token_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    project = Project(tmp_path)
    project.prepare()
    (tmp_path / tokens.DASHBOARD).write_text(text)
    with pytest.raises(DshpcError, match="no usable token"):
        tokens.kept(project, tokens.DASHBOARD)


def test_a_kept_token_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.prepare()
    assert tokens.kept(project, tokens.DASHBOARD) == tokens.kept(project, tokens.DASHBOARD)


def test_what_the_page_says_to_write_is_the_setting() -> None:
    page = "docs/how-to/dashboard.md"
    (text,) = [block.text for block in blocks(page) if block.language == "yaml"]
    assert load(yaml_text=text, yaml_name=page).dashboard == "127.0.0.1:8410"


def test_other_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["dashboard", "--port", "70000"], "dshpc") == 64
    assert "65535" in capsys.readouterr().err
