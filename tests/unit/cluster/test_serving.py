"""What serves beside a cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cluster import serving
from dshpc_setup.errors import DshpcError
from dshpc_setup.join import giving, tokens
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.unit.engine.fake import FakeMachine


def test_nothing_is_kept_from_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As uvx runs it: uv may empty that under it."""
    prefix = tmp_path / "uv/archive/x"
    prefix.mkdir(parents=True)
    (tmp_path / "uv/CACHEDIR.TAG").touch()
    machine: Any = FakeMachine()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    with pytest.raises(DshpcError) as refused:
        serving._start(machine, Project(tmp_path), serving.SERVICES[0], "127.0.0.1:1")
    assert "uv tool install" in refused.value.details
    assert not (tmp_path / serving.SERVICES[0].folder).exists()
    told: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda _, text: told.append(text))
    for engine in ("builtin", None):
        (tmp_path / ".dshpc").mkdir(exist_ok=True)
        (tmp_path / ".dshpc/runtime.json").write_text(json.dumps({"engine": engine}))
        serving.follow(machine, Project(tmp_path), Silent(), Settings())
    assert [("uv cache clean" in text) for text in told] == [True], "of Docker's it is no matter"
    with pytest.raises(DshpcError, match="in a cache"):
        giving.give(machine, Project(tmp_path), "1h", once=False)
    assert not (tmp_path / tokens.FOLDER).exists()
