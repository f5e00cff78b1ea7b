"""Whether the jobs that Slurm knows fit the limits that a start would bring, asked before anything stops.

slurmctld takes no job beyond MaxJobCount, not the one that proves a start either, and where its queue has
tasks with numbers beyond MaxArraySize it loses them and jobs behind them as it reads its saved state
(seen with 24.11.5).
"""

from __future__ import annotations

from dataclasses import dataclass

from dshpc_setup.apply.apply import read_text
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm_releases import SHIPPED

_ASK_S = 30.0
_ROOM = 2  # for the job that proves a start


@dataclass(frozen=True)
class Queue:
    """How many jobs Slurm knows, each task of an array counted, and the largest number of a task."""

    count: int
    last_task: int


def ask(machine: Machine, container: str) -> Queue | None:
    """None where squeue does not say."""
    slurm = Slurm(machine, container)
    jobs = slurm.rows("ArrayTaskID State", "all", each_task=True, deadline_s=_ASK_S).value
    if jobs is None:
        return None
    return Queue(len(jobs), max((job.task for job in jobs if job.task is not None), default=-1))


def check(machine: Machine, container: str, conf: str) -> None:
    """Raises DshpcError where the jobs of that container do not fit this slurm.conf."""
    queue = ask(machine, container)
    if queue is None or not queue.count:
        return
    jobs = slurm_conf.number(slurm_conf.last(conf, "MaxJobCount"))
    tasks = slurm_conf.number(slurm_conf.last(conf, "MaxArraySize"))
    jobs = SHIPPED.defaults.job_count if jobs is None else jobs
    tasks = SHIPPED.defaults.array_size if tasks is None else tasks
    if queue.count + _ROOM > jobs:
        raise DshpcError(
            f"Slurm knows {queue.count} jobs, and may know {jobs} then (MaxJobCount).",
            "Queued and running jobs count, each task of an array, and for five minutes those that have "
            "ended. It would take no job any more, not the first one of a start either. Nothing was stopped.",
            (
                f"Allow more: dshpc config set job_limit {max(2 * queue.count, 100)}",
                "In a slurm.conf of your own, or in slurm_conf_extra, it is the line MaxJobCount",
                "Or wait until some have ended: dshpc job list",
            ),
        )
    if queue.last_task >= tasks:
        raise DshpcError(
            f"An array in the queue has task {queue.last_task}, and tasks would end at {tasks - 1} then "
            "(MaxArraySize).",
            "Slurm would lose it, and other jobs with it. Nothing was stopped.",
            (
                f"Allow more: dshpc config set array_limit {queue.last_task + 1}",
                "In a slurm.conf of your own, or in slurm_conf_extra, it is the line MaxArraySize",
                "Or wait until it has ended: dshpc job list",
            ),
        )


def check_folder(machine: Machine, container: str, project: Project) -> None:
    """As `check`, of the slurm.conf that lies in the project folder; where it cannot be read, whoever puts
    it in force says so."""
    try:
        text = read_text(project.folder / "config" / "slurm.conf")
    except DshpcError:
        return
    if text is not None:
        check(machine, container, text)
