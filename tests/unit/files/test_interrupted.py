"""Ctrl-C while a path is walked down: what the caller gets is Ctrl-C, and nothing is closed twice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dshpc_setup.files import anchored
from dshpc_setup.project import trust

_close = os.close


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "a/b/file").write_text("text")
    return tmp_path / "link/b"


def _look(deep: Path) -> object:
    return trust.judged(str(deep.resolve()))


def _open(deep: Path) -> object:
    handle = anchored.open_file(deep / "file", os.O_RDONLY)
    _close(handle)
    return handle


@pytest.mark.parametrize("walk", [_look, _open])
def test_ctrl_c_behind_each_close(
    walk: Callable[[Path], object], deep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anchored, "_is_needed", lambda: True)
    monkeypatch.setattr(anchored, "_is_roots", lambda _at, _link: True)
    calls: list[int] = []
    last = [0]

    def interrupted(handle: int) -> None:
        _close(handle)
        calls.append(handle)
        if len(calls) == last[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "close", interrupted)
    walk(deep)
    closes = len(calls)
    assert closes > 3
    for last[0] in range(1, closes + 1):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            walk(deep)
