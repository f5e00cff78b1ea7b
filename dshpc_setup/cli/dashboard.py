"""`dshpc dashboard`: the address printed, the pages served until Ctrl-C, or by a process that is kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, exec_stdin, interrupt_code, put
from dshpc_setup.cli.command_line import machine_of, reporter
from dshpc_setup.cli.job_request import cluster
from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.project import tokens
from dshpc_setup.project.folder import Project

if TYPE_CHECKING:
    from dshpc_setup.dashboard.others import Others
    from dshpc_setup.dashboard.serve import Place
    from dshpc_setup.dashboard.source import Inside

_NODE = "dshpc-node"
_EXTRA = ("starlette", "uvicorn", "python_multipart", "wsproto")


@dataclass(frozen=True)
class Asked:
    """As the command line has it; None where it does not say."""

    port: int | None = None
    listen: str | None = None
    browser: bool = True
    others: Others | None = None


def show(project: Project, folder: Path | None, asked: Asked) -> int:
    """Say where the one is that `up` has started, or serve; the exit code. Raises DshpcError where it
    cannot begin."""
    _need_packages()
    from dshpc_setup.cluster import serving
    from dshpc_setup.dashboard import browser
    from dshpc_setup.dashboard.serve import Place

    if asked.others is not None and asked.others.is_asked:
        return _serve_others(project, asked, asked.others)
    if asked.port is None and asked.listen is None:
        running = serving.address(project, serving.DASHBOARD)
        if running is not None and project.foreign is None:
            url = f"http://{running}/?token={tokens.kept(project, tokens.DASHBOARD)}"
            put(f"{url}\n")
            if asked.browser and os.isatty(1):
                browser.open_now(machine_of(project), project, url)
            return 0
    place = Place(asked.listen or "127.0.0.1", asked.port or 0)
    return _serve(project, folder, place, browser=asked.browser)


def keep(project: Project, folder: Path | None, asked: Asked) -> int:
    """Serve at the address of the setting, with the token that is kept."""
    _need_packages()
    from dshpc_setup.dashboard.serve import Place

    is_for_others = asked.others is not None and asked.others.is_asked
    if asked.port is not None or asked.listen is not None or is_for_others:
        raise usage_error(
            "--serve listens where the setting dashboard says.",
            "--port and --listen say something else.",
            "Leave them out, or --serve.",
        )
    project.need_own()
    host, _, port = project.settings(machine_of(project).env).dashboard.rpartition(":")
    if not host:
        raise usage_error(
            "The setting dashboard is off: nothing is served.",
            "",
            "Write it into dshpc.yaml: dashboard: 127.0.0.1:8410",
        )
    place = Place(host, int(port), tokens.kept(project, tokens.DASHBOARD))
    return _serve(project, folder, place, browser=False)


def _serve_others(project: Project, asked: Asked, others: Others) -> int:
    from dshpc_setup.dashboard import serve_others

    where = asked.listen or "127.0.0.1", asked.port or 0
    try:
        serve_others.serve(
            machine_of(project), project.folder, others, where, lambda url: put(f"{url}\n")
        )
    except KeyboardInterrupt:
        return interrupt_code()
    return 0


def _serve(project: Project, folder: Path | None, place: Place, *, browser: bool) -> int:
    from dshpc_setup.dashboard import serve as serving
    from dshpc_setup.dashboard.live_source import LiveSource

    here = cluster(folder)
    machine = machine_of(project)
    inside = _inside(machine, here.runtime)
    source = LiveSource(machine, project, inside, here.prepare, here.work, here.owner)

    def say(url: str) -> None:
        put(f"{url}\n" if place.token is None else f"It serves at {url.partition('?')[0]}\n")

    try:
        serving.serve(source, place, serving.Says(say, reporter(False).note), browser=browser)
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
        call.more = exec_caller.for_people(os.environ) if is_node else []
        with asking:
            argv = call.client(exec_caller.calling_user(os.environ), os.environ)
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
