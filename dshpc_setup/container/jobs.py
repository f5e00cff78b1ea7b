"""The queue: what slurmctld does not put right in it by itself, and who holds GPUs."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dshpc_setup.container import ends
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.places import Places

_ASK_S = 20.0
_CONCLUDE_S = 20.0  # slurmctld may still read its state
_MOST = 20  # ids in a sentence
_COMPLETED_S = 10.0
_POLL_S = 0.1
_OTHER_SECOND_S = 1.1
_DELAY = timedelta(seconds=122)  # of a job that is queued again: 120 s in job_mgr.c, rounded up
_IN_FRONT = -10  # Slurm's priority for all is 1, and -1 would come to the same
# What `scontrol release` says of a job that cannot run on what is here; it is let go all the same
_NOT_NOW = "configuration not available now"
_WAIT_FOR_SOMETHING_ELSE = frozenset(
    "BadConstraints BeginTime Dependency DependencyNeverSatisfied JobHeldAdmin JobHeldUser "
    "JobArrayTaskLimit PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit "
    "Reservation ReservationDeleted".split()
)
# No name: people choose it, a line break in it included
_QUEUE = (
    *("squeue", "-h", "-a", "-t", "RUNNING,SUSPENDED,STOPPED,PENDING,COMPLETING", "-O"),
    "JobID:|,State:|,BatchFlag:|,Requeue:|,Reason:|,NodeList:300|,RestartCnt:|,EligibleTime:|",
)
# The first job of a start, and of a run of configure-environment: root's, and in no list of ours
PROOF = "dshpc-proof"


@dataclass(frozen=True)
class InterruptedJob:
    """A batch job that Slurm takes for running; `restarts` so far."""

    job: str
    uid: int
    restarts: int


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
    """`notes`: sentences about what was done; `again`: ids of the jobs that were queued again, now or
    before."""

    notes: tuple[str, ...] = ()
    again: tuple[str, ...] = ()


def conclude_ended(machine: Machine, places: Places) -> tuple[str, ...]:
    """Ids of the jobs that slurmctld has restored as running and whose script had ended.

    They do not run it again. Before slurmd registers: then slurmctld queues again by itself what began
    20 s ago or earlier, and nobody can tell such a job from one that a person has queued again.
    """
    columns = "JobID:|,State:|,BatchFlag:|,RestartCnt:|,UserID:|"
    result = machine.run(["squeue", "-h", "-a", "-O", columns], deadline_s=_CONCLUDE_S)
    if not result.ok:
        return ()
    words = (line.partition("|")[0].strip() for line in result.stdout.split("\n"))
    ends.forget(places, {int(word) for word in words if word.isdecimal()})  # they may wait by now
    jobs = read_running(result.stdout)
    found = []
    for each in jobs:
        # Of one that was concluded before, that run may have been cut off as well
        code = ends.concluded_code(places, int(each.job), each.restarts)
        if code is None:
            code = ends.code_of(places, each.uid, int(each.job), each.restarts)
        if code is not None:
            ends.conclude(places, int(each.job), each.restarts + 1, code)
            found.append(each.job)
    return tuple(found)


def read_running(text: str) -> tuple[InterruptedJob, ...]:
    """The batch jobs that run, of lines `id|state|batch flag|restarts|uid|`; others are not read."""
    rows = ([field.strip() for field in line.split("|")] for line in text.split("\n"))
    return tuple(
        InterruptedJob(row[0], int(row[4]), int(row[3]))
        for row in rows
        if len(row) == 6
        and row[1:3] == ["RUNNING", "1"]
        and all(row[n].isdecimal() for n in (0, 3, 4))
    )


def interrupted_wait_beside_others(machine: Machine, node: str) -> bool:
    """Whether jobs that were interrupted are to begin again, and others could take their place.

    Slurm has the former wait for two minutes (`let_begin`), and gives the latter what is free at once.
    """
    result = machine.run(_QUEUE, deadline_s=_CONCLUDE_S)
    if not result.ok:
        return False
    queue = read_queue(result.stdout, node, datetime.now())  # noqa: DTZ005 -- as Slurm's times
    first = {*queue.again, *queue.delayed}
    rows = ([field.strip() for field in line.split("|")] for line in result.stdout.split("\n"))
    others = (
        len(row) == 9
        and row[1] == "PENDING"
        and row[0] not in first
        and row[4] not in _WAIT_FOR_SOMETHING_ELSE
        for row in rows
    )
    return bool(first) and any(others)


def tidy_queue(
    machine: Machine, node: str, *, fresh: bool, concluded: Collection[str] = ()
) -> Tidied:
    """Put right what slurmctld itself does not in its queue.

    `fresh`: the container has just started. Nothing is left then of jobs that ran before, but
    slurmctld restores them as running: it gives up a batch job only at a registration of the node
    that comes 20 s after the job's start, and one of srun or salloc never. Until then they hold their
    CPUs and GPUs. A pending job that cannot run on what is here gets reason BadConstraints and
    priority 0, and keeps both when that is back. (All seen with 24.11.5.)
    """
    result = machine.run(_QUEUE, deadline_s=_ASK_S)
    cancel_proofs(machine)
    if not result.ok:
        return Tidied((f"The queue could not be looked at: {result.text or result.state}",))
    queue = read_queue(result.stdout, node, datetime.now())  # noqa: DTZ005 -- as Slurm's times
    orders = [["scontrol", "release", ",".join(queue.stuck)]] if queue.stuck else []
    if fresh and queue.again:
        orders.append(["scontrol", "requeue", ",".join(queue.again)])
    if fresh and queue.ended:
        orders.append(["scancel", *queue.ended])
    said = []
    for argv in orders:
        done = machine.run(argv, deadline_s=_ASK_S)
        if not done.ok and _NOT_NOW not in done.text:
            said.append(f"The queue could not be put right ({' '.join(argv)}): {done.text}")
    if fresh and (queue.again or queue.ended):
        lost = [job for job in queue.again if job not in concluded]
        said.append(
            f"Jobs that ran when the container stopped: {len(lost)} queued again, "
            f"{len(queue.ended)} ended (not to be requeued, or not by sbatch)."
            f"{_listed('Queued again', lost)}{_listed('Ended', queue.ended)}"
        )
    if concluded:
        what = "Jobs that had run to their end when the container was killed, and do not run again"
        said.append(_listed(what, sorted(concluded, key=int)).lstrip())
    return Tidied(tuple(said), (*queue.again, *queue.delayed) if fresh else ())


def _listed(what: str, jobs: Sequence[str]) -> str:
    return (
        f" {what}: {', '.join(jobs[:_MOST])}{', ...' if len(jobs) > _MOST else ''}." if jobs else ""
    )


def let_begin(machine: Machine, ids: Sequence[str], queued: float) -> None:
    """Let jobs begin that were queued again at `queued` (of the monotonic clock).

    Slurm has them wait for two minutes, so that their new credential is of another second than the
    end of the old one (batch_requeue_fini in job_mgr.c, 24.11). A bit more than one second is enough
    for that. It sets the time as a job stops completing.
    """
    if not ids:
        return
    time.sleep(max(0.0, queued + _OTHER_SECOND_S - time.monotonic()))
    until = time.monotonic() + _COMPLETED_S
    while time.monotonic() < until:
        left = machine.run(
            ["squeue", "-h", "-a", "-t", "COMPLETING", "-O", "JobID:|"], deadline_s=_ASK_S
        )
        if left.ok and not set(ids) & set(left.stdout.replace("|", " ").split()):
            break
        time.sleep(_POLL_S)
    start_now(machine, ids)


def start_now(machine: Machine, ids: Sequence[str]) -> None:
    """They wait for no time any more; slurmctld looks at the queue upon it."""
    if ids:
        machine.run(
            ["scontrol", "update", f"jobid={','.join(ids)}", "starttime=now"], deadline_s=_ASK_S
        )


def put_in_front(machine: Machine, ids: Sequence[str]) -> None:
    """Jobs that were interrupted come before those that were submitted after them.

    Slurm orders jobs of one priority by the time of their submission, which it sets anew as it queues a
    job again. Who has chosen a `--nice` of his own keeps it.
    """
    if not ids:
        return
    result = machine.run(
        ["squeue", "-h", "-a", f"--jobs={','.join(ids)}", "-O", "JobID:|,Nice:|"], deadline_s=_ASK_S
    )
    rows = ([field.strip() for field in line.split("|")] for line in result.stdout.split("\n"))
    # A task of an array has a number of its own
    plain = [row[0] for row in rows if len(row) == 3 and row[0].isdecimal() and row[1] == "0"]
    if result.ok and plain:
        machine.run(
            ["scontrol", "update", f"jobid={','.join(plain)}", f"nice={_IN_FRONT}"],
            deadline_s=_ASK_S,
        )


def cancel_proofs(machine: Machine) -> None:
    """A killed srun leaves its job behind, which has a GPU or is given one later."""
    machine.run(["scancel", f"--name={PROOF}", "--user=root"], deadline_s=_ASK_S)


def read_queue(text: str, node: str, now: datetime) -> Queue:
    """From lines `id|state|batch flag|requeue flag|reason|nodes|restarts|eligible time|`; others are
    not read. `now` is of the container's clock and zone, as Slurm's times are."""
    again: list[str] = []
    ended: list[str] = []
    stuck: list[str] = []
    delayed: list[str] = []
    for line in text.split("\n"):
        fields = [item.strip() for item in line.split("|")]
        if len(fields) != 9 or not fields[0].isdecimal():
            continue
        job, state, batch, requeue, reason, nodes, restarts, eligible, _ = fields
        if state == "PENDING":
            if reason == "BadConstraints":
                stuck.append(job)
            elif restarts not in ("", "0") and _is_delay(eligible, now):
                delayed.append(job)
        elif state == "COMPLETING":
            # slurmctld has found it on cores that are no more, and queues it again as it has ended
            if batch == "1" and requeue == "1":
                delayed.append(job)
        elif node in nodes.split(","):
            (again if batch == "1" and requeue == "1" else ended).append(job)
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
    return tuple(_running(machine, "JobID:|").replace("|", " ").split())


def waiting_clients(machine: Machine) -> tuple[str, ...]:
    """Ids of the jobs of srun and salloc that are queued; none where nobody knows."""
    result = machine.run(
        ["squeue", "-h", "-a", "-t", "PENDING", "-O", "JobID:|,BatchFlag:|"], deadline_s=_ASK_S
    )
    return read_waiting(result.stdout) if result.ok else ()


def read_waiting(text: str) -> tuple[str, ...]:
    """From lines `id|batch flag|`."""
    found = ([item.strip() for item in line.split("|")] for line in text.split("\n"))
    return tuple(fields[0] for fields in found if fields[0].isdecimal() and fields[1:2] == ["0"])


def holders_of_gpus(machine: Machine) -> tuple[str, ...]:
    """Ids of the jobs that run and have GPUs, or shares of them; DshpcError where nobody knows."""
    asked = ",".join(f"tres-per-{of}:|" for of in ("job", "node", "socket", "task"))
    return read_holders(_running(machine, f"JobID:|,{asked}"))


def _running(machine: Machine, columns: str) -> str:
    states = "RUNNING,SUSPENDED,STOPPED,COMPLETING"
    result = machine.run(["squeue", "-h", "-t", states, "-O", columns], deadline_s=_ASK_S)
    if not result.ok:
        raise DshpcError(
            "The controller does not say which jobs run.",
            result.text,
            (Fix("See", "docker logs CONTAINER", step="look"),),
        )
    return result.stdout


def read_holders(text: str) -> tuple[str, ...]:
    """From lines `id|tres|tres|tres|tres|`."""
    found = (line.partition("|") for line in text.split("\n"))
    return tuple(job.strip() for job, _, asked in found if job.strip() and "gres" in asked)


def others_hold_the_node(machine: Machine) -> bool:
    """Whether jobs of people run, or are about to, so that the proof had to wait for them."""
    result = machine.run(
        ["squeue", "-h", "-t", "RUNNING,PENDING,COMPLETING,SUSPENDED", "-o", "%T|%r|%U|%j"],
        deadline_s=_ASK_S,
    )
    return result.ok and read_others(result.stdout)


def read_others(text: str) -> bool:
    """From lines `state|reason|uid|name`: whether one is no proof of ours and can hold the node."""
    for line in text.split("\n"):
        state, reason, uid, name, *_ = [*line.split("|", 3), "", "", "", ""]
        waits = state == "PENDING" and reason in _WAIT_FOR_SOMETHING_ELSE
        if state and not waits and (uid, name) != ("0", PROOF):
            return True
    return False
