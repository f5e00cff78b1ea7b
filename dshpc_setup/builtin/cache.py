"""Where this user's containers are known and their root filesystems lie."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def folder(env: Mapping[str, str]) -> Path:
    """`dshpc` in XDG_CACHE_HOME where that is a whole path, or else in ~/.cache."""
    told = env.get("XDG_CACHE_HOME", "")
    base = Path(told) if told.startswith("/") else Path(env.get("HOME") or _home()) / ".cache"
    return base / "dshpc"


def _home() -> str:
    """Of this user, where the environment names none: a service, a line of cron."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"
