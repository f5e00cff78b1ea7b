"""No job begins while somebody on the host waits for those that run: `dshpc-node hold`.

Partitions in which jobs may begin are set DOWN: they take jobs, and what runs goes on. That is a lease: a
process here opens them again where the one that waits has not asked for more in time, whatever became of
it. A start of slurmctld opens them, too, by its slurm.conf.
"""

from __future__ import annotations

import os
import time

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files.storage import read_text, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import Paths

_ASK_S = 20.0
LEASE_S = 60.0
_LOOK_S = 1.0
_WATCH = ("dshpc-node", "hold", "watch")


def begin(machine: Machine, paths: Paths) -> None:
    """Raises DshpcError where somebody waits already, or slurmctld does not do it: all is as it was then."""
    if _is_held(paths):
        raise DshpcError(
            "Somebody waits already until no job runs.",
            "",
            ("Wait for that: dshpc status",),
            Exit.INCOMPLETE,
        )
    found = Slurm(machine).open_partitions(deadline_s=_ASK_S)
    if found.value is None:
        raise DshpcError("Slurm's partitions could not be asked for.", found.asked.text)
    replace_text(_lease(paths), "".join(f"{name}\n" for name in found.value), sync=False)
    try:
        _set(machine, found.value, "DOWN")
    except DshpcError:
        end(machine, paths)
        raise
    machine.start_daemon([*_WATCH], log=f"{paths.run}/hold.log")


def renew(machine: Machine, paths: Paths) -> None:
    """Raises DshpcError where nothing is held any more. A slurmctld that was started anew is told again."""
    if not _is_held(paths):
        raise DshpcError("The queue is not held any more.", "It was not renewed in time.")
    os.utime(_lease(paths))
    _set(machine, _names(paths), "DOWN")


def end(machine: Machine, paths: Paths) -> None:
    """Jobs may begin again; raises DshpcError where slurmctld does not do it."""
    names = _names(paths)
    if os.path.exists(_lease(paths)):
        os.unlink(_lease(paths))
    _set(machine, names, "UP")


def watch(machine: Machine, paths: Paths) -> None:
    """Until it is over; one that nobody renewed is ended here."""
    while _is_held(paths):
        time.sleep(_LOOK_S)
    if os.path.exists(_lease(paths)):
        end(machine, paths)


def _set(machine: Machine, names: tuple[str, ...], state: str) -> None:
    for name in names:
        done = Slurm(machine).set_partition(name, state, deadline_s=_ASK_S)
        if not done.ok:
            raise DshpcError(f"Slurm does not set the partition {name} {state}.", done.text)


def _lease(paths: Paths) -> str:
    return f"{paths.run}/hold"


def _names(paths: Paths) -> tuple[str, ...]:
    return tuple((read_text(_lease(paths)) or "").split())


def _is_held(paths: Paths) -> bool:
    try:
        return time.time() - os.stat(_lease(paths)).st_mtime < LEASE_S
    except FileNotFoundError:
        return False
