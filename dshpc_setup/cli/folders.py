"""The project folder that a command is about, without typer: doctor finds it before typer is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dshpc_setup.errors import DshpcError, usage_error

if TYPE_CHECKING:
    from dshpc_setup.project.folder import Project


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
            raise usage_error(f"--dir {named}: that is a file, not a folder.")
        if named is not None and not here.is_dir():
            raise usage_error(f"--dir {named}: there is no such folder.")
    except PermissionError:
        raise _closed(named) from None
    return here


def may_look(named: Path, here: Path) -> None:
    """Raises DshpcError (usage) for a folder that lies in one which is closed to this user."""
    try:
        here.lstat()
    except PermissionError:
        raise _closed(named) from None
    except OSError:  # it is not there yet
        pass


def _closed(named: Path | None) -> DshpcError:
    return usage_error(
        f"--dir {named}: you may not look there.",
        "A folder on the way is closed to you.",
        "Name a folder of yours: --dir ~/cluster",
    )


def found_project(folder: Path | None) -> Project | None:
    """The folder named, else the project that we stand in, if any.

    Raises DshpcError where the folder that is named could have been written by others.
    """
    from dshpc_setup.project.folder import find_project, project_at

    here = folder_of(folder)
    if folder is not None:
        return project_at(here)
    found = find_project(here, os.environ)
    if found is not None and found.ignored:
        from dshpc_setup.cli.exec import say_ignored

        say_ignored(found.ignored)
    if found is not None or os.environ.get("DSHPC_DIR"):
        return found
    from dshpc_setup.project import known

    place = known.elsewhere(str(here), os.environ)
    return None if place is None else project_at(Path(place.folder))
