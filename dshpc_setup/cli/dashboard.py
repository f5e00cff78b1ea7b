"""`dshpc dashboard`: the address printed, the pages served until Ctrl-C."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_stdin, interrupt_code, put
from dshpc_setup.cli.command_line import machine_of
from dshpc_setup.cli.job_request import cluster
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.project.folder import Project

if TYPE_CHECKING:
    from dshpc_setup.dashboard.source import Inside

_NODE = "dshpc-node"
_EXTRA = ("starlette", "uvicorn", "python_multipart")


def serve(project: Project, folder: Path | None, *, port: int, listen: str, browser: bool) -> int:
    """Serve, and give the exit code; raises DshpcError where it cannot begin."""
    _need_packages()
    from dshpc_setup.dashboard import serve as serving
    from dshpc_setup.dashboard.source import LiveSource

    here = cluster(folder)
    machine = machine_of(project)
    inside = _inside(machine, here.runtime)
    source = LiveSource(machine, project, inside, here.prepare, here.work, here.owner)
    try:
        serving.serve(
            source, serving.Place(listen, port), lambda url: put(f"{url}\n"), browser=browser
        )
    except KeyboardInterrupt:
        return interrupt_code()
    return 0


def _inside(machine: Machine, runtime: dict[str, object]) -> Inside:
    """As `dshpc job` and `dshpc scontrol` call it: as the calling user."""
    asking = threading.Lock()  # a Call looks at our umask, which has to be changed for that

    def run(
        words: Sequence[str],
        *,
        deadline_s: float,
        stdin: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        program, *rest = words
        is_node = program == _NODE
        call = execution.Call(execution.NODE if is_node else program, rest, runtime)
        call.mode = exec_stdin.NONE if stdin is None else exec_stdin.DIRECT
        call.more = execution.for_people(os.environ) if is_node else []
        with asking:
            argv = call.client(execution.calling_user(os.environ), os.environ)
        return machine.run(argv, deadline_s=deadline_s, stdin=stdin, on_line=on_line)

    return run


def _need_packages() -> None:
    """Raises DshpcError where the extra `dashboard` is not installed."""
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise DshpcError(
            "The packages of the dashboard are not installed.",
            f"There is no {', '.join(missing)}.",
            (
                Fix("Install them", "pip install 'dshpc-setup[dashboard]'"),
                Fix(
                    "Or, where pipx has installed dshpc",
                    "pipx install --force 'dshpc-setup[dashboard]'",
                    step="alternative",
                ),
            ),
        )
