"""`dshpc doctor --bundle` on the screen: the contents are shown, then the report is written."""

from __future__ import annotations

import sys
from pathlib import Path

from dshpc_setup.bundle import contents, scrubbed, sources, writing
from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.engine.privilege import caller
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.reporter import Reporter


def write_report(
    machine: Machine,
    project: Project | None,
    seen: tuple[CheckInput, tuple[Finding, ...]],
    path: Path,
    reporter: Reporter,
) -> None:
    """Write it; what it holds is told on stderr. Raises DshpcError where it cannot be written."""
    files = scrubbed.files(machine, sources.ask(machine, project, seen, reporter))
    listed = contents.listed(files)
    who = caller(machine)
    print(listed[contents.NAME], file=sys.stderr)
    size = writing.write(path, listed, (who.uid, who.gid) if who.via_sudo else None)
    print(f"Written: {path} ({size} bytes). Look through it before you send it.", file=sys.stderr)
