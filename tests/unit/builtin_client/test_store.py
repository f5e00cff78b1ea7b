"""A cache that cannot be made is told with the variable that places it elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.builtin_client.store import Store
from dshpc_setup.errors import DshpcError


def test_a_cache_in_a_closed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Python 3.12, asking whether something is there raises in such a folder."""
    closed = tmp_path / "closed"

    def stat(path: Path, **_: object) -> os.stat_result:
        if path.is_relative_to(closed) and path != closed:
            raise PermissionError(13, "Permission denied", str(path))
        return os.stat(path)

    closed.mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(Path, "exists", lambda path: bool(stat(path)))
    with (
        pytest.raises(DshpcError, match="permission denied") as raised,
        Store({"XDG_CACHE_HOME": str(closed / "x")}).changing(),
    ):
        pass
    assert "XDG_CACHE_HOME" in raised.value.resolution[0]
