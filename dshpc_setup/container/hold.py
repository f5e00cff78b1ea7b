"""No job begins while somebody on the host waits for those that run: `dshpc-node hold`.

Partitions in which jobs may begin are set DOWN: they take jobs, and what runs goes on. That is a lease: a
process here opens them again where the one that waits has not asked for more in time, whatever became of
it. A start of slurmctld opens them, too, by its slurm.conf.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files.storage import open_lock, read_text, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import Paths

_ASK_S = 20.0
LEASE_S = 60.0
_LOOK_S = 1.0
_WATCH = ("dshpc-node", "hold", "watch")


def begin(machine: Machine, paths: Paths) -> None:
    """Raises DshpcError where somebody waits already, or slurmctld does not do it: all is as it was then."""
    with _alone(paths):
        if _is_held(paths):
            raise DshpcError(
                "Somebody waits already until no job runs, or did so less than a minute ago.",
                "",
                ("Run this again in a minute. See what runs: dshpc squeue",),
                Exit.INCOMPLETE,
            )
        if _is_there(paths):  # of one that has ended, and whose partitions are still closed
            _open(machine, paths)
        states = Slurm(machine).partition_states(deadline_s=_ASK_S)
        if states.value is None:
            raise DshpcError("Slurm's partitions could not be asked for.", states.asked.text)
        names = tuple(name for name, state in states.value.items() if state == "UP")
        replace_text(_lease(paths), "".join(f"{name}\n" for name in names), sync=False)
        machine.start_daemon([*_WATCH], log=f"{paths.run}/hold.log")
        try:
            _set(machine, names, "DOWN")
        except DshpcError:
            with contextlib.suppress(DshpcError):  # else the watch does it
                _open(machine, paths)
            raise


def renew(machine: Machine, paths: Paths) -> None:
    """Raises DshpcError where nothing is held any more. A slurmctld that was started anew is told again."""
    with _alone(paths):
        if not _is_held(paths):
            raise DshpcError("The queue is not held any more.", "It was not renewed in time.")
        os.utime(_lease(paths))
        _set(machine, _names(paths), "DOWN")


def end(machine: Machine, paths: Paths) -> None:
    """Jobs may begin again; raises DshpcError where slurmctld does not do it: the watch asks it on and on."""
    with _alone(paths):
        _open(machine, paths)


def watch(machine: Machine, paths: Paths) -> None:
    """Until it is over; one that nobody renewed is ended here, however long slurmctld takes."""
    while _is_there(paths):
        with _alone(paths), contextlib.suppress(DshpcError):
            if not _is_held(paths):
                _open(machine, paths)
        time.sleep(_LOOK_S)


def _open(machine: Machine, paths: Paths) -> None:
    names = _names(paths)
    if _is_there(paths):
        os.utime(_lease(paths), (0, 0))
    _set(machine, names, "UP")
    if _is_there(paths):
        os.unlink(_lease(paths))


def _set(machine: Machine, names: tuple[str, ...], state: str) -> None:
    """All of them that there are, before it raises for one."""
    refused = ""
    for name in names:
        done = Slurm(machine).set_partition(name, state, deadline_s=_ASK_S)
        if not done.ok:
            now = Slurm(machine).partition_states(deadline_s=_ASK_S).value
            if now is None:
                raise _not_set(name, state, done.text)
            refused = refused or (name if name in now else "")
    if refused:
        raise _not_set(refused, state, "")


def _not_set(name: str, state: str, why: str) -> DshpcError:
    return DshpcError(f"Slurm does not set the partition {name} {state}.", why)


def _lease(paths: Paths) -> str:
    return f"{paths.run}/hold"


def _names(paths: Paths) -> tuple[str, ...]:
    return tuple((read_text(_lease(paths)) or "").split())


def _is_there(paths: Paths) -> bool:
    return os.path.exists(_lease(paths))


def _is_held(paths: Paths) -> bool:
    try:
        return time.time() - os.stat(_lease(paths)).st_mtime < LEASE_S
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _alone(paths: Paths) -> Iterator[None]:
    with open_lock(f"{paths.run}/hold.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
