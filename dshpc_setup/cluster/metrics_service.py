"""The process that serves metrics: of the cluster's owner, started by `up`, ended by `down`.

A service of systemd's where one outlives the session, as the built-in engine's supervisor is.
"""

from __future__ import annotations

import signal
import socket
import sys
import time
from pathlib import Path

import dshpc_setup
from dshpc_setup.builtin import processes, rights, units
from dshpc_setup.builtin.processes import Process
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.terminal.reporter import Reporter

NOTE = f"{OWN}/metrics.json"
FOLDER = f"{OWN}/metrics"
LOG = "supervisor.log"  # as units names it
_UP_S = 20.0
_DOWN_S = 10.0
_MOST_SAID = 2000
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from dshpc_setup import cli; "
    "sys.exit(cli.run(['metrics', '--serve', '--dir', sys.argv[2]], 'dshpc'))"
)


def follow(
    machine: Machine, project: Project, reporter: Reporter, wanted: str | None = None
) -> None:
    """Have it serve as the setting says; what keeps it from that is a note: the cluster runs without."""
    if project.foreign is not None:
        return
    wanted = project.settings(machine.env).metrics if wanted is None else wanted
    note = project.read_note(NOTE)
    running = _process(note)
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


def stop(project: Project) -> bool:
    """End it; False where none ran."""
    running = _process(project.read_note(NOTE))
    if running is None:
        return False
    ran = processes.send(running, signal.SIGTERM)
    if ran and not processes.wait_gone(running, _DOWN_S):
        processes.send(running, signal.SIGKILL)
    project.drop_json(NOTE)
    return ran


def _process(note: dict[str, object]) -> Process | None:
    pid, ticks, boot = (note.get(key) for key in ("pid", "ticks", "boot"))
    if isinstance(pid, int) and isinstance(ticks, int) and isinstance(boot, str):
        return Process(pid, ticks, boot)
    return None


def _start(machine: Machine, project: Project, wanted: str) -> None:
    folder = project.folder / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / LOG).write_bytes(b"")
    top = str(Path(dshpc_setup.__file__).parents[1])
    program = [sys.executable, "-I", "-c", _PROGRAM, top, str(project.folder)]
    user = rights.current_user()
    process = units.start(machine, folder, program, user, about="dsHPC setup: metrics")
    if process is None:
        process = processes.of(machine.start_daemon(program, log=str(folder / LOG)))
    if process is None or not _listens(process, wanted):
        said = (folder / LOG).read_text(errors="replace")[-_MOST_SAID:].strip()
        raise DshpcError("The process that serves them has ended.", said or "it gave no reason.")
    value = {"pid": process.pid, "ticks": process.ticks, "boot": process.boot, "address": wanted}
    project.write_json(NOTE, value)


def _listens(process: Process, wanted: str) -> bool:
    """Whether it listens within the time; False where it has ended."""
    host, _, port = wanted.rpartition(":")
    where = (host.strip("[]"), int(port))
    until = time.monotonic() + _UP_S
    while time.monotonic() < until:
        if not processes.runs(process):
            return False
        try:
            socket.create_connection(where, timeout=1.0).close()
        except OSError:
            time.sleep(0.1)
            continue
        time.sleep(0.2)  # another one may listen there: then ours is about to end
        return processes.runs(process)
    return False
