"""The process that serves metrics: of the cluster's owner, started by `up`, ended by `down`.

A service of systemd's where one outlives the session, as the built-in engine's supervisor is.
"""

from __future__ import annotations

import os
import socket
import time

from dshpc_setup.builtin import processes
from dshpc_setup.builtin.processes import Process
from dshpc_setup.cluster import own_process
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.terminal.reporter import Reporter

NOTE = f"{OWN}/metrics.json"
FOLDER = f"{OWN}/metrics"
_UP_S = 20.0


def follow(
    machine: Machine, project: Project, reporter: Reporter, wanted: str | None = None
) -> None:
    """Have it serve as the setting says; what keeps it from that is a note: the cluster runs without."""
    if project.foreign is not None:
        return
    if wanted is None and (wanted := _setting(machine, project)) is None:
        return
    note = project.read_note(NOTE)
    running = own_process.of_note(note)
    if running is not None and processes.runs(running) and note.get("address") == wanted:
        return
    stop(project)
    if wanted == "off":
        return
    reporter.progress(f"metrics: starting to serve at {wanted}")
    try:
        _start(machine, project, wanted)
    except (DshpcError, OSError) as error:
        details = error.details if isinstance(error, DshpcError) else str(error)
        reporter.note(f"Metrics are not served at {wanted}: {details}")


def _setting(machine: Machine, project: Project) -> str | None:
    """None where settings are wrong, of which others tell: what serves goes on as it does."""
    try:
        read = project.read_settings(machine.env)
    except DshpcError:
        return None
    return None if read.wrong else read.settings.metrics


def stop(project: Project) -> bool:
    """End it; False where none ran."""
    running = own_process.of_note(project.read_note(NOTE))
    if running is None:
        return False
    ran = own_process.end(running)
    project.drop_json(NOTE)
    return ran


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


def _start(machine: Machine, project: Project, wanted: str) -> None:
    _need_free(_where(wanted))
    folder = project.folder / FOLDER
    words = ["metrics", "--serve", "--dir", str(project.folder)]
    process = own_process.start(machine, folder, words, "dsHPC setup: metrics")
    if process is None or not _listens(process, wanted):
        said = own_process.said(folder)
        raise DshpcError("The process that serves them has ended.", said or "it gave no reason.")
    project.write_json(NOTE, own_process.to_note(process, address=wanted))


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
