"""A process of the cluster's owner beside it: started, found again by a note, ended.

A service of systemd's where one outlives the session, as the built-in engine's supervisor is.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import dshpc_setup
from dshpc_setup.builtin import processes
from dshpc_setup.builtin.processes import Process
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import Machine

LOG = "supervisor.log"  # as units names it
_UP_S, _DOWN_S = 20.0, 10.0
_MOST_SAID = 2000
_PROGRAM = (
    "import os, sys; os.chdir(sys.argv.pop(1)); sys.path[:0] = sys.argv[1].split(os.pathsep); "
    "from dshpc_setup import cli; sys.exit(cli.run(sys.argv[2:], 'dshpc'))"
)


def program(arguments: Sequence[str], folder: str = ".") -> list[str]:
    """The words that run `dshpc` with these arguments, in that folder.

    Nothing of PYTHONPATH counts there; what we import may lie in a folder that it names.
    """
    top = str(Path(dshpc_setup.__file__).parents[1])
    found = importlib.util.find_spec("typer")
    site = [] if found is None or found.origin is None else [str(Path(found.origin).parents[1])]
    return [sys.executable, "-I", "-c", _PROGRAM, folder, os.pathsep.join([top, *site]), *arguments]


def lies_in_cache(inside: Path) -> bool:
    """As what uvx runs does: uv may empty it under a process that goes on (`uv cache clean`, `prune`)."""
    return any((above / "CACHEDIR.TAG").exists() for above in inside.parents)


def need_lasting(why: str, then: str, inside: Path | None = None) -> None:
    """Raises DshpcError where this program (`inside`: that environment's) lies in a cache, as with uvx;
    `then`: what to type with the one that is installed for good."""
    if lies_in_cache(inside or Path(sys.prefix)):
        raise DshpcError(
            "This dshpc lies in a cache that is emptied now and then.",
            why,
            (
                Fix("Install it for good", "uv tool install 'dshpc-setup[dashboard]'"),
                Fix("Then, with that one", then),
            ),
        )


def start(machine: Machine, folder: Path, arguments: Sequence[str], about: str) -> Process | None:
    """`dshpc` with these arguments; what it says lies in the folder. None where it has ended at once."""
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / LOG).write_bytes(b"")
    # Under sudo it acts as who called it, as each command does
    who = [
        f"{name}={machine.env[name]}" for name in ("SUDO_UID", "SUDO_GID") if name in machine.env
    ]
    python = program(arguments)
    words = [*(["env", *who] if who else []), *python]
    from dshpc_setup.builtin import rights, units  # most runs start none

    process = units.start(machine, folder, words, rights.current_user(), about=about)
    if process is None:
        process = processes.of(machine.start_daemon(words, log=str(folder / LOG)))
    return process


def listens(process: Process, where: tuple[str, int]) -> bool:
    """Whether it listens there within the time; False where it has ended."""
    until = time.monotonic() + _UP_S
    while time.monotonic() < until and processes.runs(process):
        try:
            socket.create_connection(where, timeout=1.0).close()
        except OSError:
            time.sleep(0.1)
            continue
        return processes.runs(process)
    return False


def said(folder: Path) -> str:
    """The end of what it said."""
    return (folder / LOG).read_text(errors="replace")[-_MOST_SAID:].strip()


def end(process: Process) -> bool:
    """Whether it ran."""
    ran = processes.send(process, signal.SIGTERM)
    if ran and not processes.wait_gone(process, _DOWN_S):
        processes.send(process, signal.SIGKILL)
    return ran


def of_note(note: dict[str, object]) -> Process | None:
    pid, ticks, boot = (note.get(key) for key in ("pid", "ticks", "boot"))
    if isinstance(pid, int) and isinstance(ticks, int) and isinstance(boot, str):
        return Process(pid, ticks, boot)
    return None


def to_note(process: Process, **more: object) -> dict[str, object]:
    return {"pid": process.pid, "ticks": process.ticks, "boot": process.boot, **more}
