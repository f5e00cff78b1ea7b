"""The configuration files: what is in force in the running container, and how `config/` differs."""

from __future__ import annotations

import base64
import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dshpc_setup.apply.apply import read_text
from dshpc_setup.apply.owned import NEW, short_name
from dshpc_setup.cluster import compose_file
from dshpc_setup.cluster.targets import Target, ours, target
from dshpc_setup.engine import compose, containers, start_report
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.files import ownership
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.render.configuration import CONFIG_FILES, LUA_FILES

FILE_SCHEMA = "dshpc.config-file/1"
SHOWN = (*CONFIG_FILES, *LUA_FILES, compose.FILE)
_ASK_S = 20.0
# A line "NAME BASE64" for each that is there: the texts come byte for byte
_READ = """cd -P /etc/slurm 2>/dev/null || exit 0
for name do [ ! -f "$name" ] || echo "$name $(base64 -w0 < "$name")"; done"""

Owner = Literal["rendered", "custom", "edited"]


@dataclass(frozen=True)
class HostFile:
    """A file of the project folder, and the new text that lies beside it where it was edited."""

    path: str
    text: str | None
    owner: ownership.Owner
    new: str | None


@dataclass(frozen=True)
class InForce:
    """What runs now. `why_not`: why nothing is in force; then there are no texts."""

    container: str
    texts: Mapping[str, str] = field(default_factory=dict)  # name -> text in /etc/slurm
    customized: Mapping[str, str] = field(default_factory=dict)  # of the files that were tried
    kept_last_good: bool = False
    made: Container | None = None  # the container, where it runs
    why_not: str | None = None


@dataclass(frozen=True)
class ConfigFile:
    """A file as it is used; `owner` is None where an older text is kept and it is not known whose."""

    path: str
    text: str
    owner: Owner | None
    where: str
    in_force: bool
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.config-file/1` object."""
        return {
            "schema": FILE_SCHEMA,
            "path": self.path,
            "text": self.text,
            "owner": self.owner,
            "sha256": ownership.digest(self.text),
            "where": self.where,
            "in_force": self.in_force,
            "note": self.note,
        }


def path_of(name: str, among: tuple[str, ...], folder: Path | None = None) -> str:
    """The path of a file that was named with or without `config/`; raises DshpcError (usage).

    Or by a path from where we stand that leads into `folder`, the project's.
    """
    plain = name.removeprefix("./").removesuffix(NEW)
    if folder is not None and "/" in plain and plain not in among:
        whole, top = os.path.realpath(plain), os.path.realpath(folder)
        plain = os.path.relpath(whole, top) if whole.startswith(f"{top}/") else plain
    for path in among:
        if plain in (path, path.removeprefix("config/"), f"config/{path}"):
            return path
    near = difflib.get_close_matches(
        plain.rpartition("/")[2], [short_name(item) for item in among], 1
    )
    raise usage_error(
        f"There is no configuration file {name!r}.",
        f"Did you mean {near[0]}?" if near else f"There are: {', '.join(map(short_name, among))}.",
    )


def host_file(project: Project, path: str) -> HostFile:
    """The file as it lies in the folder; raises DshpcError where it cannot be read."""
    text = read_text(project.folder / path)
    owner = ownership.classify(text, project.manifest.get(path))
    return HostFile(path, text, owner, read_text(project.folder / f"{path}{NEW}"))


def ask_in_force(machine: Machine, cluster: Target) -> InForce:
    """The texts in the container's /etc/slurm; raises DshpcError where it cannot be asked."""
    found = ours(machine, cluster)
    name = cluster.container
    if found is None or found.status != "running":
        return InForce(name, why_not=_down(found))
    argv = ["sh", "-c", _READ, "sh", *CONFIG_FILES, *LUA_FILES]
    asked = containers.exec_in(machine, name, argv, deadline_s=_ASK_S)
    if not asked.ok:
        raise DshpcError(
            f"The files in the container {name} could not be read.",
            asked.text or f"It did not answer within {_ASK_S:.0f} s.",
            ("See its state: dshpc status",),
            Exit.INCOMPLETE,
        )
    report = start_report.ask(machine, name)
    # A start that failed leaves the files that it was tried with
    texts = {} if isinstance(report.get("failure"), dict) else parse_texts(asked.stdout)
    customized = report.get("customized")
    return InForce(
        name,
        texts,
        dict(customized) if isinstance(customized, dict) else {},
        kept_last_good=isinstance(report.get("kept_last_good"), dict),
        made=found,
        why_not=None if texts else _no_texts(report),
    )


def _down(found: Container | None) -> str:
    return (
        "The cluster is down" if found is None else f"The container {containers.how(found.status)}"
    )


def _no_texts(report: Mapping[str, Any]) -> str:
    failure = report.get("failure")
    if isinstance(failure, dict):
        return f"The start failed ({str(failure.get('brief', '')).rstrip('.')})"
    return "The container is still starting"


def parse_texts(text: str) -> dict[str, str]:
    """Lines "NAME BASE64" -> name and text, byte for byte (surrogateescape)."""
    found = {}
    for line in text.splitlines():
        name, _, coded = line.partition(" ")
        try:
            raw = base64.b64decode(coded, validate=True)
        except ValueError:
            continue
        if name in (*CONFIG_FILES, *LUA_FILES):
            found[name] = raw.decode("utf-8", "surrogateescape")
    return found


def show(machine: Machine, project: Project, name: str) -> ConfigFile:
    """The file as it is in force, else as it would be used; `note` says which where that matters.

    Raises DshpcError for a name that is none, and for a file that is not there.
    """
    path = path_of(name, SHOWN, project.folder)
    cluster = target(project)
    now = ask_in_force(machine, cluster)
    if path == compose.FILE:
        return _shown_compose(host_file(project, path), now, project)
    host = host_file(project, f"config/{path}") if path in CONFIG_FILES else None
    if path in now.texts:
        text = now.texts[path]
        owner = owner_in_force(path, text, now, host)
        note = None
        if now.kept_last_good:
            note = "This is the last good one: your newer files were refused. See: dshpc status"
        shown_path = host.path if host else path
        where = f"{now.container}:/etc/slurm/{path}"
        return ConfigFile(shown_path, text, owner, where, in_force=True, note=note)
    why = now.why_not or f"The container has no /etc/slurm/{path}"
    return _would_be_used(path, host, why, project)


def _would_be_used(name: str, host: HostFile | None, why: str, project: Project) -> ConfigFile:
    """The file in config/, where it says what the next start would use."""
    if host is None or host.text is None:
        raise DshpcError(
            f"No {name} is in force. {why}.",
            f"The container writes {name} at its start, from what it sees there.",
            ("Start the cluster: dshpc up",),
        )
    said = f"{why}, so nothing is in force. This is {host.path}"
    if host.owner == "ours":
        said += "; at its start the container writes its own from what it sees"
    where = str(project.folder / host.path)
    return ConfigFile(host.path, host.text, _owner(host), where, in_force=False, note=f"{said}.")


def _shown_compose(host: HostFile, now: InForce, project: Project) -> ConfigFile:
    if host.text is None:
        raise DshpcError(
            f"{project.folder / host.path} is missing.",
            "It says how the cluster is started.",
            ("Write it again: configure-environment",),
        )
    note = None
    if now.why_not and not now.texts:
        note = f"{now.why_not}. This is what the next start would use."
    elif now.made is not None and compose_file.made_from(project, host.text, now.made) is False:
        note = "The container was started with another text. Use this one: dshpc up"
    where = str(project.folder / host.path)
    return ConfigFile(host.path, host.text, _owner(host), where, in_force=note is None, note=note)


def _owner(host: HostFile) -> Owner:
    return host.owner if host.owner in ("custom", "edited") else "rendered"


def owner_in_force(name: str, text: str, now: InForce, host: HostFile | None) -> Owner | None:
    """Whose text it is that the container uses."""
    if ownership.is_marked(text):
        return "custom"
    if not now.kept_last_good:
        return "edited" if now.customized.get(name) in ("custom", "edited") else "rendered"
    if host is not None and host.text == text:
        return _owner(host)
    return None if host is not None else "rendered"
