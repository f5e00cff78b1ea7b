"""Where repairs are done: the machine, the project held for the whole run, who is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dshpc_setup.diagnose import CheckInput
from dshpc_setup.engine.privilege import run_as_root
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.repair.model import Host
from dshpc_setup.terminal.reporter import Reporter


class HeldProject(Project):
    """A project whose lock this run has taken already: what takes it for itself goes on."""

    @contextlib.contextmanager
    def lock(self, *, files: bool = True) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Site:
    """`time` stands in the names of copies; `backups`: file -> the copy made of it in this run."""

    machine: Machine
    reporter: Reporter
    known: CheckInput
    here: Host
    project: Project | None
    interactive: bool
    time: str
    backups: dict[str, str] = field(default_factory=dict)

    def run(self, argv: Sequence[str], *, root: bool, deadline_s: float) -> CommandResult:
        """Run it as ourselves or as root; raises DshpcError where root is not to be had."""
        if not root:
            return self.machine.run(argv, deadline_s=deadline_s)
        return run_as_root(self.machine, argv, interactive=self.interactive, deadline_s=deadline_s)
