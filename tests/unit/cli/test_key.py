"""`dshpc key rotate`: one JSON object or one sentence, and the exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import key as key_command
from dshpc_setup.cluster.key import Rotated
from dshpc_setup.errors import DshpcError, Exit

DONE = Rotated("p-slurm", "k.2", datetime(2026, 1, 1, 0, 1, 5, tzinfo=timezone.utc), 324.5)


WAYS = {"lab2": {"host": "ada@lab2", "folder": "dshpc-p"}, "lab9": {"host": 1}}
# A project that nothing is known of
NO_RUNTIME = SimpleNamespace(runtime=dict, read_note=lambda _: {})


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_command, "needed_project", lambda _: NO_RUNTIME)
    monkeypatch.setattr("dshpc_setup.cluster.key.rotate", lambda *_: DONE)


def test_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["key", "rotate", "--json"], "dshpc") == 0
    assert json.loads(capsys.readouterr().out) == DONE.to_json()


def test_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["key", "rotate"], "dshpc") == 0
    out = capsys.readouterr().out
    assert out == f"{DONE.describe()}\n"
    assert "is refused after" in out


def test_nodes_that_ssh_reaches_join_anew_and_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = SimpleNamespace(runtime=dict, read_note=lambda _: WAYS)
    done = replace(DONE, cut_off=("lab2", "lab3"))
    asked: list[tuple[str, ...]] = []

    def again(_: object, __: object, ___: object, only: Any, **____: object) -> dict[str, Any]:
        asked.append(tuple(only))
        return {"lab2": DshpcError("lab2 does not let this user in.")}

    monkeypatch.setattr(key_command, "needed_project", lambda _: project)
    monkeypatch.setattr("dshpc_setup.cluster.key.rotate", lambda *_: done)
    monkeypatch.setattr("dshpc_setup.adding.adding.again", again)
    assert cli.run(["key", "rotate"], "dshpc") == 3
    said = capsys.readouterr()
    assert asked == [("lab2",)]
    assert "On other machines: lab3." in said.out
    assert "lab2 has not joined again: lab2 does not let" in said.err


def test_its_errors_and_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise DshpcError("Not now.", "", ("Later.",), Exit.INCOMPLETE)

    monkeypatch.setattr("dshpc_setup.cluster.key.rotate", fail)
    assert cli.run(["key", "rotate", "--json"], "dshpc") == 3
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["error"]["brief"]) == ("dshpc.error/1", "Not now.")


def test_the_folder_is_named_by_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Path | None] = []

    def needed(folder: Path | None) -> SimpleNamespace:
        asked.append(folder)
        return NO_RUNTIME

    monkeypatch.setattr(key_command, "needed_project", needed)
    assert cli.run(["key", "rotate", "--dir", str(tmp_path)], "dshpc") == 0
    assert asked == [tmp_path]


@pytest.mark.parametrize("arguments", [["key", "rotate", "now"], ["key", "forget"]])
def test_wrong_usage(arguments: list[str]) -> None:
    assert cli.run(arguments, "dshpc") == 64
