"""Processes that serve while the cluster runs, metrics and the dashboard: of the cluster's owner, started by
`up`, ended by `down`.

A service of systemd's where one outlives the session, as the built-in engine's supervisor is.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import dshpc_setup
from dshpc_setup.builtin import processes
from dshpc_setup.builtin.processes import Process
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

LOG = "supervisor.log"  # as units names it
_UP_S = 20.0
_DOWN_S = 10.0
_MOST_SAID = 2000
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from dshpc_setup import cli; "
    "sys.exit(cli.run([sys.argv[3], '--serve', '--dir', sys.argv[2]], 'dshpc'))"
)


@dataclass(frozen=True)
class Service:
    """What `dshpc NAME --serve` serves, at the address that the setting of that name has."""

    name: str
    about: str  # "Metrics are": begins a sentence

    @property
    def note(self) -> str:
        """The process that runs, and where it listens."""
        return f"{OWN}/{self.name}.json"

    @property
    def folder(self) -> str:
        return f"{OWN}/{self.name}"


METRICS = Service("metrics", "Metrics are")
DASHBOARD = Service("dashboard", "The dashboard is")
SERVICES = (METRICS, DASHBOARD)


def follow(
    machine: Machine, project: Project, reporter: Reporter, settings: Settings | None = None
) -> None:
    """Have each serve as its setting says; what keeps it from that is a note: the cluster runs without."""
    if project.foreign is not None:
        return
    if settings is None and (settings := _settings(machine, project)) is None:
        return
    for service in SERVICES:
        _follow(machine, project, reporter, service, getattr(settings, service.name))


def _follow(
    machine: Machine, project: Project, reporter: Reporter, service: Service, wanted: str
) -> None:
    of_us = project.read_note(service.note).get("version") == dshpc_setup.__version__
    if of_us and address(project, service) == wanted:
        return
    _stop(project, service)
    if wanted == "off":
        return
    reporter.progress(f"{service.name}: starting to serve at {wanted}")
    try:
        _start(machine, project, service, wanted)
    except (DshpcError, OSError) as error:
        told = f"{error.brief} {error.details}" if isinstance(error, DshpcError) else str(error)
        reporter.note(f"{service.about} not served at {wanted}: {told.strip()}")


def _settings(machine: Machine, project: Project) -> Settings | None:
    """None where settings are wrong, of which others tell: what serves goes on as it does."""
    try:
        read = project.read_settings(machine.env)
    except DshpcError:
        return None
    return None if read.wrong else read.settings


def address(project: Project, service: Service) -> str | None:
    """Where it serves now; None where its process does not run."""
    note = project.read_note(service.note)
    running, where = _process(note), note.get("address")
    if running is None or not isinstance(where, str) or not processes.runs(running):
        return None
    return where


def stop(project: Project) -> None:
    """End them all."""
    for service in SERVICES:
        _stop(project, service)


def _stop(project: Project, service: Service) -> None:
    running = _process(project.read_note(service.note))
    if running is None:
        return
    if processes.send(running, signal.SIGTERM) and not processes.wait_gone(running, _DOWN_S):
        processes.send(running, signal.SIGKILL)
    project.drop_json(service.note)


def _process(note: dict[str, object]) -> Process | None:
    pid, ticks, boot = (note.get(key) for key in ("pid", "ticks", "boot"))
    if isinstance(pid, int) and isinstance(ticks, int) and isinstance(boot, str):
        return Process(pid, ticks, boot)
    return None


def _where(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _need_free(where: tuple[str, int]) -> None:
    """Raises DshpcError where it cannot be listened at: else who listens there is taken for ours."""
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(where)
            tried.listen()
        except OSError as error:
            raise DshpcError(
                f"{where[0]}:{where[1]} cannot be listened at.",
                f"{os.strerror(error.errno or 0)}. See who listens: ss -ltnp 'sport = :{where[1]}'",
            ) from None


def _start(machine: Machine, project: Project, service: Service, wanted: str) -> None:
    _need_free(_where(wanted))
    folder = project.folder / service.folder
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / LOG).write_bytes(b"")
    top = str(Path(dshpc_setup.__file__).parents[1])
    # Under sudo it acts as who called it, as each command does
    who = [
        f"{name}={machine.env[name]}" for name in ("SUDO_UID", "SUDO_GID") if name in machine.env
    ]
    python = [sys.executable, "-I", "-c", _PROGRAM, top, str(project.folder), service.name]
    program = [*(["env", *who] if who else []), *python]
    from dshpc_setup.builtin import rights, units  # most runs start none

    user = rights.current_user()
    process = units.start(machine, folder, program, user, about=f"dsHPC setup: {service.name}")
    if process is None:
        process = processes.of(machine.start_daemon(program, log=str(folder / LOG)))
    if process is None or not _listens(process, wanted):
        said = (folder / LOG).read_text(errors="replace")[-_MOST_SAID:].strip()
        raise DshpcError("Its process has ended.", said or "it gave no reason.")
    value = {"pid": process.pid, "ticks": process.ticks, "boot": process.boot, "address": wanted}
    value["version"] = dshpc_setup.__version__
    project.write_json(service.note, value)


def _listens(process: Process, wanted: str) -> bool:
    """Whether it listens within the time; False where it has ended."""
    until = time.monotonic() + _UP_S
    while time.monotonic() < until:
        if not processes.runs(process):
            return False
        try:
            socket.create_connection(_where(wanted), timeout=1.0).close()
        except OSError:
            time.sleep(0.1)
            continue
        return processes.runs(process)
    return False
