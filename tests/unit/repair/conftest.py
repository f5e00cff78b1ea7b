"""No test of repairs writes into the home of who runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.repair import lock


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the lock."""
    folder = tmp_path / "state" / "dshpc"
    monkeypatch.setattr(lock, "state_folder", lambda _: folder)
    return folder
