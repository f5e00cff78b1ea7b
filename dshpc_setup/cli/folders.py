"""The project folder that a command is about, without typer: doctor finds it before typer is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dshpc_setup.errors import usage_error

if TYPE_CHECKING:
    from dshpc_setup.project import Project


def folder_of(named: Path | None) -> Path:
    """The folder named, else the one that we are in; raises DshpcError where there is none."""
    try:
        here = (named or Path.cwd()).expanduser().absolute().resolve()
    except FileNotFoundError:
        raise usage_error(
            "The folder that you are in was removed.", "", "Go to another, or name one: --dir DIR."
        ) from None
    try:
        if named is not None and here.exists() and not here.is_dir():
            raise usage_error(f"--dir {named}: that is a file, and no folder.")
        if named is not None and not here.is_dir():
            raise usage_error(f"--dir {named}: there is no such folder.")
    except PermissionError:
        raise usage_error(f"--dir {named}: you may not look there.") from None
    return here


def found_project(folder: Path | None) -> Project | None:
    """The folder named, else the project that we stand in, if any."""
    from dshpc_setup.project import Project, find_project

    here = folder_of(folder)
    return Project(here) if folder is not None else find_project(here, os.environ)
