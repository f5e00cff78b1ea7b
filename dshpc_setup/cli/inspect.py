"""Settings as text and as JSON."""

from __future__ import annotations

import difflib
from typing import Any

from dshpc_setup.cli.console import as_called
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.files import write_atomic
from dshpc_setup.project import Project
from dshpc_setup.settings import BY_NAME, DECLARATIONS, Settings
from dshpc_setup.settings_file import changed


def settings_json(settings: Settings) -> dict[str, Any]:
    """The `dshpc.settings/1` object: name -> value, origin, where."""
    values = {
        item.name: {
            "value": getattr(settings, item.name),
            "origin": settings.sources[item.name].origin,
            "where": settings.sources[item.name].where,
        }
        for item in DECLARATIONS
    }
    return {"schema": "dshpc.settings/1", "settings": values}


def print_settings(settings: Settings) -> None:
    for item in DECLARATIONS:
        value = getattr(settings, item.name)
        shown = ",".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
        source = settings.sources[item.name]
        where = source.where if source.origin == "default" else f"{source.origin}: {source.where}"
        print(f"{item.name:<14} {shown or '-':<22} {where}")


def set_in_file(project: Project, name: str, value: str) -> None:
    """Write the setting into the project's dshpc.yaml; a remembered flag would still outrank it."""
    path = project.folder / "dshpc.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = None
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"Cannot read {path}.", str(error), "Make it a UTF-8 text.") from None
    write_atomic(path, changed(text, name, value), owner=project.owner)
    print(as_called(f"{path}: {name} = {value}. Run configure-environment to put it into effect."))
    if name in project.remembered:
        print(as_called(f"A remembered flag still outranks it: dshpc config unset {name}"))


def forget(project: Project, names: list[str]) -> None:
    """Drop remembered flags; raises DshpcError for a name that is no setting or not remembered."""
    remembered = project.remembered
    for name in names:
        if name not in BY_NAME:
            near = difflib.get_close_matches(name, list(BY_NAME), 1)
            raise usage_error(
                f"There is no setting {name!r}.",
                f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(BY_NAME)}.",
            )
        if name not in remembered:
            raise _not_remembered(project, name)
    project.forget(names)
    said = f"Forgotten: {', '.join(names)}. Run configure-environment to put it into effect."
    print(as_called(said))


def _not_remembered(project: Project, name: str) -> DshpcError:
    source = project.settings({}).sources[name]
    if source.origin == "file":
        return usage_error(
            f"{name} stands in {source.where} and is not a remembered flag.",
            "",
            f"Take that line out of {project.folder / 'dshpc.yaml'} to have the default again.",
        )
    return usage_error(f"No flag is remembered for {name}.", "", "See: dshpc config show")
