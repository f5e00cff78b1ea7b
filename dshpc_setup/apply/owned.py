"""The files of a project folder that dshpc writes, by their paths in it."""

from __future__ import annotations

from dshpc_setup.engine import compose
from dshpc_setup.project.folder import OWN
from dshpc_setup.render.configuration import CONFIG_FILES

MOUNTED = tuple(f"config/{name}" for name in CONFIG_FILES)
OWNABLE = (*MOUNTED, compose.FILE, ".env")  # what a user may make his own
JOURNAL = f"{OWN}/journal.json"
NEW = ".dshpc-new"  # behind the name of an edited file: what we would have written


def short_name(path: str) -> str:
    """The path without `config/`."""
    return path.removeprefix("config/")
