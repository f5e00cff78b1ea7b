"""Where this user's containers are known and their root filesystems lie."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # each `dshpc srun` takes this
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


PLACE = "DSHPC_ENGINE_CACHE"
"""The variable by which a project's cluster is found with another cache folder than its caller's: ours."""


def folder(env: Mapping[str, str]) -> Path:
    """`dshpc` in XDG_CACHE_HOME where that is a whole path, or else in ~/.cache."""
    from pathlib import Path

    return Path(place(env))


def place(env: Mapping[str, str]) -> str:
    """The same as a text."""
    if env.get(PLACE):
        return env[PLACE]
    told = env.get("XDG_CACHE_HOME", "")
    base = told if told.startswith("/") else f"{env.get('HOME') or _home()}/.cache"
    return f"{base}/dshpc"


def _home() -> str:
    """Of this user, where the environment names none: a service, a line of cron."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def make_folder(path: Path) -> None:
    """A folder of the cache and those above it; DshpcError names the variable that places it elsewhere."""
    from dataclasses import replace

    from dshpc_setup.errors import DshpcError
    from dshpc_setup.files import atomic

    try:
        atomic.make_folder(path, mode=0o700)
    except DshpcError as error:
        step = "Choose a folder that you may write in: export XDG_CACHE_HOME=DIR"
        raise replace(error, steps=(step, *error.steps[:1])) from None
