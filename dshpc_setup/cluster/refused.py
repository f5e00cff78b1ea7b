"""Why the last run of configure-environment put nothing in force: kept while nothing has changed since."""

from __future__ import annotations

from typing import Any

from dshpc_setup.apply.apply import read_text
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import ownership
from dshpc_setup.project.folder import REFUSED, Project
from dshpc_setup.render.configuration import CONFIG_FILES
from dshpc_setup.settings import Settings, applied


def remember(project: Project, settings: Settings, error: DshpcError) -> None:
    """For a run that has written none of its files: those of the run before stay in force."""
    record = applied.record(settings)
    if not record or not project.manifest:  # not to be compared later, or nothing is in force yet
        forget(project)
        return
    value = {"settings": record, "files": _own(project), "error": error.to_json()}
    project.write_json(REFUSED, value)


def forget(project: Project) -> None:
    project.drop_json(REFUSED)


def standing(project: Project, settings: Settings) -> dict[str, Any] | None:
    """As `errors.told_error` takes it; None where it would be tried with something else now, and may do."""
    note = project.read_note(REFUSED)
    record, error = note.get("settings"), note.get("error")
    if not isinstance(record, dict) or not isinstance(error, dict):
        return None
    if any(applied.behind(record, settings)) or note.get("files") != _own(project):
        return None
    return error if isinstance(error.get("brief"), str) else None


def _own(project: Project) -> dict[str, str]:
    """Files of config/ as they are: one of the user's may be what was refused."""
    found = {}
    for name in CONFIG_FILES:
        try:
            text = read_text(project.folder / "config" / name)
        except DshpcError:
            continue
        if text is not None:
            found[name] = ownership.digest(text)
    return found
