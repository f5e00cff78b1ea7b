"""Where this user's containers are known and their root filesystems lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def folder(env: Mapping[str, str]) -> Path:
    """`dshpc` in XDG_CACHE_HOME where that is a whole path, or else in ~/.cache."""
    told = env.get("XDG_CACHE_HOME", "")
    base = Path(told) if told.startswith("/") else Path(env.get("HOME") or "/") / ".cache"
    return base / "dshpc"
