"""The queue: what slurmctld does not put right in it by itself, and who holds GPUs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from dshpc_setup import slurm_releases
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.slurm_releases import SHIPPED

_ASK_S = 20.0
_COMPLETED_S = 10.0
_POLL_S = 0.1
_OTHER_SECOND_S = 1.1
_DELAY = timedelta(seconds=SHIPPED.defaults.requeue_delay_s + 2)
_IN_FRONT = -10  # Slurm's priority for all is 1, and -1 would come to the same
# No name: people choose it, a line break in it included
_QUEUE = "JobID State BatchFlag Requeue Reason NodeList RestartCnt EligibleTime"
_QUEUED = "RUNNING,SUSPENDED,STOPPED,PENDING,COMPLETING"
_RUNNING = "RUNNING,SUSPENDED,STOPPED,COMPLETING"
# The first job of a start, and of a run of configure-environment: root's, and in no list of ours
PROOF = "dshpc-proof"


@dataclass(frozen=True)
class Queue:
    """Ids of jobs: `again` and `ended` are taken for running and are lost; `stuck` wait for what was
    not there when slurmctld last looked; `delayed` were queued again by others than us, before or just
    now, and wait for two minutes."""

    again: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    delayed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tidied:
    """`notes`: sentences about what could not be done; `again`: ids of the jobs that were queued again,
    now or before."""

    notes: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


def interrupted_wait_beside_others(machine: Machine, node: str) -> bool:
    """Whether jobs that were interrupted are to begin again, and others could take their place.

    Slurm has the former wait for two minutes (`let_begin`), and gives the latter what is free at once.
    """
    jobs = Slurm(machine).rows(_QUEUE, _QUEUED, deadline_s=_ASK_S).value
    if jobs is None:
        return False
    queue = sorted_queue(jobs, node, datetime.now())  # noqa: DTZ005 -- as Slurm's times
    first = {*queue.again, *queue.delayed}
    others = (
        job.state == "PENDING" and job.id not in first and not slurm_releases.no_rival(job.reason)
        for job in jobs
    )
    return bool(first) and any(others)


def tidy_queue(machine: Machine, node: str, *, fresh: bool) -> Tidied:
    """Put right what slurmctld itself does not in its queue.

    `fresh`: the container has just started. Nothing is left then of jobs that ran before, but
    slurmctld restores them as running: it gives up a batch job only at a registration of the node
    that comes 20 s after the job's start, and one of srun or salloc never. Until then they hold their
    CPUs and GPUs. A pending job that cannot run on what is here gets reason BadConstraints and
    priority 0, and keeps both when that is back. (All seen with 24.11.5.)
    """
    slurm = Slurm(machine)
    told = slurm.rows(_QUEUE, _QUEUED, deadline_s=_ASK_S)
    cancel_proofs(machine, node)
    if told.value is None:
        return Tidied((f"The queue could not be looked at: {told.asked.text or told.asked.state}",))
    queue = sorted_queue(told.value, node, datetime.now())  # noqa: DTZ005 -- as Slurm's times
    orders = [partial(slurm.release, queue.stuck)] if queue.stuck else []
    if fresh and queue.again:
        orders.append(partial(slurm.requeue, queue.again))
    if fresh and queue.ended:
        orders.append(partial(slurm.cancel, *queue.ended))
    said = []
    for order in orders:
        done = order(deadline_s=_ASK_S)
        # Released it is all the same
        if not done.ok and not slurm_releases.says("not_here_now").search(done.text):
            said.append(f"The queue could not be put right ({' '.join(done.argv)}): {done.text}")
    return Tidied(tuple(said), (*queue.again, *queue.delayed) if fresh else ())


def let_begin(machine: Machine, ids: Sequence[str], queued: float) -> None:
    """Let jobs begin that were queued again at `queued` (of the monotonic clock).

    Slurm has them wait for two minutes, so that their new credential is of another second than the
    end of the old one (batch_requeue_fini in job_mgr.c, 24.11). A bit more than one second is enough
    for that. It sets the time as a job stops completing.
    """
    if not ids:
        return
    time.sleep(max(0.0, queued + _OTHER_SECOND_S - time.monotonic()))
    until, slurm = time.monotonic() + _COMPLETED_S, Slurm(machine)
    while time.monotonic() < until:
        left = slurm.rows("JobID", "COMPLETING", deadline_s=_ASK_S).value
        if left is not None and not set(ids) & {job.id for job in left}:
            break
        time.sleep(_POLL_S)
    start_now(machine, ids)


def start_now(machine: Machine, ids: Sequence[str]) -> None:
    """They wait for no time any more; slurmctld looks at the queue upon it."""
    if ids:
        Slurm(machine).update_jobs(ids, "starttime=now", deadline_s=_ASK_S)


def put_in_front(machine: Machine, ids: Sequence[str]) -> None:
    """Jobs that were interrupted come before those that were submitted after them.

    Slurm orders jobs of one priority by the time of their submission, which it sets anew as it queues a
    job again. Who has chosen a `--nice` of his own keeps it.
    """
    if not ids:
        return
    slurm = Slurm(machine)
    jobs = slurm.rows("JobID Nice", ids=ids, deadline_s=_ASK_S).value
    # A task of an array has a number of its own
    plain = [job.id for job in jobs or () if job.nice == 0]
    if plain:
        slurm.update_jobs(plain, f"nice={_IN_FRONT}", deadline_s=_ASK_S)


def cancel_proofs(machine: Machine, node: str) -> None:
    """A killed srun leaves its job behind, which has a GPU or is given one later.

    Where there are other nodes, these may be proving themselves now.
    """
    there = node if "DSHPC_ROLE" in machine.env else None
    Slurm(machine).cancel_named(PROOF, "root", there, deadline_s=_ASK_S)


def sorted_queue(jobs: Iterable[SlurmJob], node: str, now: datetime) -> Queue:
    """`now` is of the container's clock and zone, as Slurm's times are."""
    again: list[str] = []
    ended: list[str] = []
    stuck: list[str] = []
    delayed: list[str] = []
    for job in jobs:
        if job.state == "PENDING":
            if slurm_releases.waits_for(job.reason) == "unfit":
                stuck.append(job.id)
            elif job.restarts and _is_delay(job.eligible, now):
                delayed.append(job.id)
        elif job.state == "COMPLETING":
            # slurmctld has found it on cores that are no more, and queues it again as it has ended
            if job.batch and job.requeue:
                delayed.append(job.id)
        elif node in job.nodes:
            (again if job.batch and job.requeue else ended).append(job.id)
    return Queue(tuple(again), tuple(ended), tuple(stuck), tuple(delayed))


def _is_delay(eligible: str, now: datetime) -> bool:
    """Whether that is the delay of a job that was queued again, and no time that a person chose.

    The reason does not tell: one that slurmctld gives up as it restores it has another than BeginTime
    until it is looked at next.
    """
    try:
        return now < datetime.fromisoformat(eligible) <= now + _DELAY
    except (ValueError, TypeError):  # "N/A", or a time with a zone
        return False


def running_jobs(machine: Machine) -> tuple[str, ...]:
    """Ids of the jobs that run; DshpcError where nobody knows."""
    return tuple(job.id for job in _running(machine, "JobID"))


def waiting_clients(machine: Machine) -> tuple[str, ...]:
    """Ids of the jobs of srun and salloc that are queued; none where nobody knows."""
    jobs = Slurm(machine).rows("JobID BatchFlag", "PENDING", deadline_s=_ASK_S).value
    return tuple(job.id for job in jobs or () if not job.batch)


def holders_of_gpus(machine: Machine) -> tuple[str, ...]:
    """Ids of the jobs that run and have GPUs, or shares of them; DshpcError where nobody knows."""
    asked = " ".join(f"tres-per-{of}" for of in ("job", "node", "socket", "task"))
    return tuple(job.id for job in _running(machine, f"JobID {asked}") if "gres" in job.asked)


def _running(machine: Machine, columns: str) -> tuple[SlurmJob, ...]:
    told = Slurm(machine).rows(columns, _RUNNING, everyone=False, deadline_s=_ASK_S)
    if told.value is None:
        raise DshpcError(
            "The controller does not say which jobs run.",
            told.asked.text,
            (Fix("See", "dshpc logs", step="look"),),
        )
    return told.value


def others_hold_the_node(machine: Machine) -> bool:
    """Whether jobs of people run, or are about to, so that the proof had to wait for them."""
    states = "RUNNING,PENDING,COMPLETING,SUSPENDED"
    columns = "State Reason UserID Name"
    told = Slurm(machine).rows(columns, states, everyone=False, deadline_s=_ASK_S)
    if told.value is None:  # with a name that hides where one ends
        return told.asked.ok
    return any(map(_holds_the_node, told.value))


def _holds_the_node(job: SlurmJob) -> bool:
    """Whether it is no proof of ours and can hold the node."""
    waits = job.state == "PENDING" and slurm_releases.no_rival(job.reason)
    return not waits and (job.uid, job.name) != (0, PROOF)
