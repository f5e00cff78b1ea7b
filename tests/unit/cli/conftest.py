"""What tests of the command line share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder, and none of our variables; a terminal of 200 columns."""
    for name in [name for name in os.environ if name.startswith("DSHPC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
