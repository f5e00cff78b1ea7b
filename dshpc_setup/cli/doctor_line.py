"""`dshpc doctor` where it only looks: its command line, the looking, the exit code.

The command is declared in doctoring.py, for its help, for what is wrong with a command line, and for what
changes something. A line of known options, well formed, is read here without typer, whose import
takes as long as the looking.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dshpc_setup.cli import checking
from dshpc_setup.cli.folders import found_project
from dshpc_setup.cli.seen import seen_machine

_SWITCHES = {"--json": "json", "--verbose": "verbose", "-v": "verbose", "--strict": "strict"}
_LISTS = {"--only": "only", "--skip": "skip"}
_PATHS = {"--junit": "junit", "--dir": "dir", "--machine": "machine"}


@dataclass(frozen=True)
class Line:
    """What is to be shown, of which folder, on which recorded machine (None: on this one)."""

    asked: checking.Asked
    dir: Path | None = None
    machine: Path | None = None


def parsed(arguments: Sequence[str]) -> Line | None:
    """The options where each is known, looks only, and has what it needs; else None: ask typer."""
    found: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        name = _SWITCHES.get(word) or _LISTS.get(option) or _PATHS.get(option)
        if name is None or (name in found and option not in _LISTS):
            return None
        if word in _SWITCHES:
            found[name] = True
            continue
        if not equals:
            value = next(words, "")
        if not value or value.startswith("-"):
            return None
        if option in _LISTS:
            found[name] = (*found.get(name, ()), value)
        else:
            found[name] = Path(value)
    places = {name: found.pop(name, None) for name in ("dir", "machine")}
    return Line(checking.Asked(**found), **places)


def look(line: Line) -> int:
    """Look, print, and give the exit code; raises DshpcError for what cannot be asked for."""
    checks = checking.checks_of(line.asked)  # before the machine is looked at, which takes its time
    from dshpc_setup.checkup import examine, examine_recorded

    project = found_project(line.dir)
    machine = seen_machine("/", line.machine, "")
    known = (
        examine(machine, project)
        if line.machine is None
        else examine_recorded(machine, project, os.environ)
    )
    return checking.show(line.asked, checking.report_of(line.asked, known, checks))
