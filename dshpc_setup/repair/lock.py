"""One run of `--fix` of a user at a time, whatever folder it is about: the engine is one for all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dshpc_setup.engine.privilege import Caller, caller
from dshpc_setup.files.atomic import make_folder
from dshpc_setup.machine import Machine
from dshpc_setup.project.run_lock import held

_WHY = "Two runs at once would restart the engine and write its files under each other."


@contextlib.contextmanager
def only_run(machine: Machine) -> Iterator[None]:
    """Hold this machine for one run; a second one is refused with the first one's process id.

    Under sudo it is the calling user's lock. Raises DshpcError where the file cannot be written.
    """
    folder = state_folder(machine)
    if folder is None:
        yield
        return
    who = _behind_sudo(machine)
    owner = (who.uid, who.gid) if who else None
    make_folder(folder, owner)
    with held(folder / "fix.lock", "repairing this machine", _WHY, owner):
        yield


def state_folder(machine: Machine) -> Path | None:
    """Where programs keep a user's state (XDG Base Directory); None for a user without a home."""
    who = _behind_sudo(machine)
    named = machine.env.get("XDG_STATE_HOME", "")
    if named.startswith("/") and who is None:
        return Path(named) / "dshpc"
    home = who.home if who else machine.env.get("HOME", "")
    return (
        Path(home) / ".local" / "state" / "dshpc" if home.startswith("/") and home != "/" else None
    )


def _behind_sudo(machine: Machine) -> Caller | None:
    if machine.uid != 0 or not machine.env.get("SUDO_UID"):
        return None
    who = caller(machine)
    return who if who.via_sudo else None
