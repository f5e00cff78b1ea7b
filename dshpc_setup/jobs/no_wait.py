"""`--no-wait`: a job that begins at once, or is taken back.

sbatch has no such option: the job is submitted, and where Slurm does not start it within seconds it is
cancelled while it waits. One that begins in that moment goes on. An array begins with all of its tasks,
or is taken back with those that have begun.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm_releases import unlooked

_START_S = 10.0  # by then Slurm has looked at it also on a machine that is busy
_LOOK_S = 0.1
_ASK_S = 10.0
_ALIVE = frozenset(("PENDING", "RUNNING", "CONFIGURING", "SUSPENDED"))


@dataclass(frozen=True)
class TakenBack:
    """`reason`: why Slurm let it wait; `begun`: of an array, the tasks that were begun and ended."""

    reason: str
    begun: int = 0


def begun_or_taken_back(machine: Machine, job_id: str) -> TakenBack | None:
    """None where the job has begun; else why not, and it is no longer queued.

    Raises DshpcError (incomplete) where Slurm does not say, or does not take it back.
    """
    deadline = time.monotonic() + _START_S
    reason = _waits_for(machine, job_id)
    while reason is not None and unlooked(reason) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        reason = _waits_for(machine, job_id)
    if reason is None:
        return None
    done = Slurm(machine).cancel_queued(job_id, deadline_s=_ASK_S)
    states = [state for state, _ in _states(machine, job_id)]
    if "PENDING" in states:
        raise _left(job_id, done)
    if states and "CANCELLED" not in states:
        return None
    begun = sum(state != "CANCELLED" for state in states)
    if not _ALIVE.isdisjoint(states):
        done = Slurm(machine).cancel(job_id, deadline_s=_ASK_S)
        if not _ALIVE.isdisjoint(state for state, _ in _states(machine, job_id)):
            raise _left(job_id, done)
    return TakenBack(reason, begun)


def _waits_for(machine: Machine, job_id: str) -> str | None:
    """Why it waits, or a task of it; None where none does."""
    waiting = [reason for state, reason in _states(machine, job_id) if state == "PENDING"]
    tried = [reason for reason in waiting if not unlooked(reason)]
    return next(iter([*tried, *waiting]), None)


def _states(machine: Machine, job_id: str) -> list[tuple[str, str]]:
    """(state, reason) of the job, or of each of its tasks, those that have ended too."""
    told = Slurm(machine).rows("State Reason", "all", ids=(job_id,), deadline_s=_ASK_S)
    if told.value is None:
        raise _left(job_id, told.asked)
    return [(job.state, job.reason) for job in told.value]


def _left(job_id: str, done: CommandResult) -> DshpcError:
    return DshpcError(
        f"Job {job_id} was submitted, and it is not known whether it could be taken back.",
        done.text or f"{done.argv[0]} ended with {done.code} ({done.state}).",
        (f"See whether it waits: dshpc job show {job_id}", f"End it: dshpc job cancel {job_id}"),
        Exit.INCOMPLETE,
    )
