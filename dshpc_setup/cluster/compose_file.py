"""docker-compose.yml: whose it is, and whether the container was made from what it says now."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from dshpc_setup.apply.apply import read_text
from dshpc_setup.apply.owned import NEW
from dshpc_setup.engine import compose
from dshpc_setup.engine.containers import Container
from dshpc_setup.files import ownership
from dshpc_setup.files.atomic import read_plain
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.render.labels import RENDERED_LABEL, parts, rendered_label

USED = f"{OWN}/used.json"  # what `compose up` was last given, and the container that there was then
_VARIABLES = ".env"  # what compose puts into a file of the user's own
_CONFIG_HASH = "com.docker.compose.config-hash"  # compose's own label: another one, another `up`


def remember_used(project: Project, made: Container | None) -> None:
    """After `compose up`, which keeps a container where nothing that counts has changed.

    `made`: the container as it is now.
    """
    text = read_text(project.folder / compose.FILE)
    used = {
        compose.FILE: ownership.digest(parts(text or "")[0]),
        _VARIABLES: _variables(project) or "",
        _CONFIG_HASH: _config_hash(made),
    }
    project.write_json(USED, used)


def made_from(project: Project, text: str, found: Container) -> bool | None:
    """Whether the controller's container is what `compose up` makes of that text; None where nobody knows.

    The label of a rendered text alone does not tell: it stays in a text that is edited by hand.
    """
    label, made_label = rendered_label(text), found.labels.get(RENDERED_LABEL)
    if label is not None and made_label is not None and label != made_label:
        return False
    used = project.read_note(USED)
    if not used or used.get(_CONFIG_HASH) != _config_hash(found):
        return None  # somebody has called compose himself since then
    if used.get(compose.FILE) != ownership.digest(parts(text)[0]):
        return False
    variables = _variables(project)
    return variables is None or (used.get(_VARIABLES) or variables) == variables


def _variables(project: Project) -> str | None:
    """None where this user may not read them: they are the owner's, with his passwords."""
    try:
        return ownership.digest_of(read_plain(project.folder / _VARIABLES) or b"")
    except OSError:
        return None


def _config_hash(found: Container | None) -> str | None:
    return None if found is None else found.labels.get(_CONFIG_HASH)


def owner(project: Project) -> ownership.Owner:
    """Whose the file is as it lies in the folder."""
    text = read_text(project.folder / compose.FILE)
    return ownership.classify(text, project.manifest.get(compose.FILE))


def is_late(project: Project, found: Container) -> bool:
    """Whether there is one, and a container that is there was made from another."""
    text = read_text(project.folder / compose.FILE)
    if text is None:
        return False
    made = made_from(project, text, found)
    return made is False or (made is None and _edited_since(project, found))


def notes(project: Project, *, late: bool) -> list[str]:
    """What is to be known of it beside a container that is there, each with what to do; `late`: is_late."""
    whose = owner(project)
    if whose == "missing":
        return [f"{compose.FILE} is missing: configure-environment writes it again"]
    said = []
    if late and whose == "ours":
        said.append(f"{compose.FILE} is newer than the container, which dshpc up recreates")
    if late and whose != "ours":
        said.append(f"{compose.FILE} was edited after the container was made: dshpc up puts it in"
                    " force, and recreates the container where it must")  # fmt: skip
    if whose == "edited" and (project.folder / f"{compose.FILE}{NEW}").exists():
        said.append(f"{compose.FILE} is yours, and a newer text waits beside it: "
                    f"dshpc config diff {compose.FILE}")  # fmt: skip
    return said


def _edited_since(project: Project, found: Container) -> bool:
    """By the times, where somebody has called compose himself."""
    made = seconds(found.created)
    return made is not None and (project.folder / compose.FILE).stat().st_mtime > made


def seconds(time: str) -> float | None:
    """Seconds of the epoch of an engine's RFC 3339 time, which is in UTC and has up to nine decimals."""
    parts = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z", time)
    if parts is None:
        return None
    whole = datetime.fromisoformat(parts[1]).replace(tzinfo=timezone.utc)
    return whole.timestamp() + float(parts[2] or 0)
