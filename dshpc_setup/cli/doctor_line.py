"""`dshpc doctor` where it only looks: its command line, the looking, the exit code.

The command is declared in doctoring.py, for its help, for what is wrong with a command line, and for what
changes something. A line of known options, well formed, is read here without typer, whose import
takes as long as the looking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dshpc_setup import engine_door
from dshpc_setup.cli.doctor_options import DoctorOptions
from dshpc_setup.cli.folders import found_project
from dshpc_setup.cli.plain_line import Options, read
from dshpc_setup.cli.seen import seen_machine
from dshpc_setup.engine import inspecting
from dshpc_setup.machine import CommandResult, Ended, Machine

if TYPE_CHECKING:
    from typing import TypeAlias

    from dshpc_setup.diagnose import CheckInput
    from dshpc_setup.diagnose.model import Check
    from dshpc_setup.project.folder import Project

    _Looked: TypeAlias = tuple[CheckInput, tuple[Check, ...] | None]

_EARLY_S = 1.0

_KNOWN = Options(
    {"--json": "json", "--verbose": "verbose", "-v": "verbose", "--strict": "strict"},
    {"--junit": "junit", "--dir": "dir", "--machine": "machine"},
    {"--only": "only", "--skip": "skip"},
)


@dataclass(frozen=True)
class Line:
    """What is to be shown, of which folder, on which recorded machine (None: on this one)."""

    asked: DoctorOptions
    dir: Path | None = None
    machine: Path | None = None


def parsed(arguments: Sequence[str]) -> Line | None:
    """The options where each is known, looks only, and has what it needs; else None: ask typer."""
    read_line = read(arguments, _KNOWN)
    if read_line is None or read_line[1]:
        return None
    found = read_line[0]
    places = {name: Path(found.pop(name)) for name in ("dir", "machine") if name in found}
    if "junit" in found:
        found["junit"] = Path(found["junit"])
    return Line(DoctorOptions(**found), **places)


def look(line: Line) -> int:
    """Look, print, and give the exit code; raises DshpcError for what cannot be asked for."""
    project = found_project(line.dir)
    machine = seen_machine("/", line.machine, "")
    if line.machine is None and project is not None:
        machine = engine_door.of(machine, project.runtime())
    known, checks = _looked(line, machine, project)
    from dshpc_setup.cli import checking

    report = checking.report_of(line.asked, known, checks, recorded=line.machine is not None)
    return checking.show(line.asked, report)


def _looked(line: Line, machine: Machine, project: Project | None) -> _Looked:
    """What is known. The cluster's container is asked before all else, as its answer comes last.

    Whether it is this project's container comes out meanwhile: if it is not, its answer is left.
    """
    ours = project is not None and project.foreign is None and line.machine is None
    name = project.runtime().get("container") if project and ours else None
    if not isinstance(name, str):
        return _rest(line, machine, project)
    from dshpc_setup.machine import commands  # noqa: F401  # once: else each process that asks does it

    found: list[_Looked] = []
    inside_s = inspecting.INSIDE_S * inspecting.patience(project.runtime() if project else {})

    def rest() -> None:
        early = inspecting.Early(_described(machine, name), asking=True)
        found.append(_rest(line, machine, project, early))

    def ask(slow: float = 1.0, meanwhile: Callable[[], object] | None = None) -> Ended:
        takes_s = inside_s * slow
        return machine.apart(
            {"inside": lambda say: say(inspecting.ask_inside(machine, name, takes_s))},
            deadline_s=takes_s,
            meanwhile=meanwhile,
        )["inside"]

    said = ask(meanwhile=rest)
    from dshpc_setup.checkup import with_inside

    ((known, checks),) = found
    return with_inside(machine, known, said, ask), checks


def _rest(
    line: Line,
    machine: Machine,
    project: Project | None,
    early: inspecting.Early | None = None,
) -> _Looked:
    from dshpc_setup.cli import checking

    checks = checking.checks_of(line.asked)  # before the machine is looked at, which takes its time
    from dshpc_setup.checkup import examine, examine_recorded

    recorded = line.machine is not None
    return examine_recorded(machine) if recorded else examine(machine, project, early), checks


def _described(machine: Machine, name: str) -> CommandResult | None:
    """What the engine says of the cluster's container, asked while this program is still being loaded.

    All other questions about the cluster wait for it. None where it did not come at once: then it is
    asked again, with the time that it may take.
    """
    words = inspecting.argv("container", name)
    ended = machine.apart(
        {"container": lambda say: say(machine.run(words, deadline_s=_EARLY_S))},
        deadline_s=_EARLY_S,
        meanwhile=_load,
    )
    said = next(iter(ended["container"].items), None)
    return said if isinstance(said, CommandResult) and said.state == "present" else None


def _load() -> None:
    from dshpc_setup import checkup  # noqa: F401
    from dshpc_setup.cli import checking  # noqa: F401
    from dshpc_setup.cluster import operations  # noqa: F401  # here, and not in the process that asks
