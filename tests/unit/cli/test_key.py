"""`dshpc key rotate`: one JSON object or one sentence, and the exit code."""

from __future__ import annotations

import json
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


NO_RUNTIME = SimpleNamespace(
    runtime=dict, read_note=lambda _: {}
)  # a project that nothing is known of


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
