"""The work folder that somebody has named, before it is made: a mistyped path makes no empty folder."""

from __future__ import annotations

from pathlib import Path

from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter


def foreseen(path: Path, settings: Settings, project: Path) -> str | None:
    """What a real run would ask; None where it asks nothing. Raises as `agreed` does, but asks nobody."""
    return _question(path, settings, project)


def agreed(path: Path, settings: Settings, project: Path, reporter: Reporter) -> None:
    """Raises DshpcError (usage) where it is not there and nobody wants it made, or the folder above it is
    not there either: the project's own is made by the run."""
    question = _question(path, settings, project)
    if question is not None and not reporter.ask(question):
        raise usage_error(
            f"The work folder {path} is not there.",
            f"It is the setting work, of {settings.sources['work'].where}.",
            "Correct the path.",
            f"Or make the folder: mkdir {path}",
            "Or have it made: configure-environment --yes",
        )


def _question(path: Path, settings: Settings, project: Path) -> str | None:
    source = settings.sources["work"]
    if source.origin == "default" or _is_there(path):
        return None
    if path.parent != project and not _is_there(path.parent):
        raise _nowhere(path, source.where)
    return f"The work folder {path} ({source.where}) is not there. Make it, empty?"


def _is_there(path: Path) -> bool:
    """Also what cannot be looked at: what is wrong with that is told as it is used."""
    try:
        path.stat()
    except FileNotFoundError:
        return path.is_symlink()
    except OSError:
        return True
    return True


def _nowhere(path: Path, where: str) -> DshpcError:
    above = path.parent
    while not _is_there(above):
        above = above.parent
    return usage_error(
        f"The work folder {path} cannot be meant: there is no folder {path.parent}.",
        f"It is the setting work, of {where}. Of its path, {above} is there.",
        "Correct the path.",
        f"Or make the folder: mkdir -p {path}",
    )
