"""What a report is made of, as it is asked: nothing here is scrubbed, and nothing of it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup.bundle.contents import MOST_BYTES
from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.machine.log import Log
from dshpc_setup.project.folder import Project
from dshpc_setup.record import recorder
from dshpc_setup.render.configuration import CONFIG_FILES
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

LOG_LINES = 500
_LONGEST_LINE = 2000
_LOG_S = 20.0
_RENDERED = (*(f"config/{name}" for name in CONFIG_FILES), "docker-compose.yml")


@dataclass(frozen=True)
class Sources:
    """`log` is the machine's recording; the paths of `rendered` are relative to the project folder."""

    known: CheckInput
    findings: tuple[Finding, ...]
    log: Log
    folder: str | None = None  # of the project
    settings: Settings | None = None  # None: there are none, or they cannot be read
    settings_text: str | None = None  # dshpc.yaml
    rendered: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)  # of .env: to know them, not to tell
    container_log: tuple[str, ...] = ()


def ask(
    machine: Machine,
    project: Project | None,
    found: tuple[CheckInput, tuple[Finding, ...]],
    reporter: Reporter,
) -> Sources:
    """All of a report about the machine and the project, with what doctor found."""
    known, findings = found
    _, log = recorder.capture_machine(machine, reporter)
    if project is None:
        return Sources(known, findings, log)
    reporter.progress("reading the files and the log of the cluster")
    if project.foreign is not None:  # nothing of another user's folder goes into a report of ours
        seen = known.observed.container
        return Sources(
            known, findings, log, str(project.folder), container_log=seen.log if seen else ()
        )
    texts = {path: _text(project.folder / path) for path in _RENDERED}
    return Sources(
        known,
        findings,
        log,
        str(project.folder),
        _settings(project, machine),
        _text(project.folder / "dshpc.yaml"),
        {path: text for path, text in texts.items() if text is not None},
        _variables(_text(project.folder / ".env") or ""),
        _container_log(machine, project, known),
    )


def _settings(project: Project, machine: Machine) -> Settings | None:
    try:
        return project.settings(machine.env)
    except DshpcError:  # a finding says so
        return None


def _text(path: Path) -> str | None:
    """Of a file no more than a report has room for; None where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(2 * MOST_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"(it cannot be read: {error.strerror or error})\n"


def _variables(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, mark, value in pairs if mark}


def _container_log(machine: Machine, project: Project, known: CheckInput) -> tuple[str, ...]:
    """Its last lines, both streams in the order in which they came."""
    seen = known.observed.container
    lines = list(seen.log) if seen is not None else []
    name = project.runtime().get("container")
    if isinstance(name, str) and known.facts.engine.state == "present":
        told: list[str] = []
        argv = DOCKER.logs(name, tail=LOG_LINES)
        result = machine.run(argv, deadline_s=_LOG_S, on_line=told.append)
        if result.ok:
            lines = told
        elif not lines:
            lines = [f"(there is no log: {result.text or result.state})"]
    return tuple(_short(line.rstrip("\n")) for line in lines[-LOG_LINES:])


def _short(line: str) -> str:
    left_out = len(line) - _LONGEST_LINE
    return line if left_out <= 0 else f"{line[:_LONGEST_LINE]} [{left_out} more characters]"
