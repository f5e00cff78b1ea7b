"""`dshpc doctor --fix` on the screen: who is asked, what is said, the exit code."""

from __future__ import annotations

from collections.abc import Callable

from dshpc_setup.cli import interrupt_code
from dshpc_setup.cli.console import is_interactive
from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.repair import Outcome, RepairOptions, repair_findings
from dshpc_setup.repair.outcome import lines
from dshpc_setup.terminal.command_names import as_called, print_error
from dshpc_setup.terminal.reporter import Reporter


def run(
    machine: Machine,
    project: Project | None,
    known: CheckInput,
    findings: tuple[Finding, ...],
    reporter: Reporter,
    *,
    again: Callable[[], tuple[Finding, ...]],
    dry_run: bool,
    yes: bool,
    strict: bool = False,
) -> Outcome:
    """Show, ask, fix and look `again`; the plan and the questions are said by the reporter."""
    asks = is_interactive()
    how = RepairOptions(reporter, again, dry_run=dry_run, yes=yes, interactive=asks, strict=strict)
    return repair_findings(machine, project, known, findings, how)


def print_outcome(outcome: Outcome) -> None:
    """What was done; an error of the whole run goes to stderr."""
    said = lines(outcome)
    if said:
        print("\n".join(map(as_called, said)))
    if outcome.error is not None:
        print_error(outcome.error)


def exit_code(outcome: Outcome) -> int:
    """128 and the number of the signal where one ended it."""
    return interrupt_code() if outcome.interrupted else outcome.exit_code
