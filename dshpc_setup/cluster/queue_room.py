"""Whether the jobs that Slurm knows fit the limits that a start would bring, asked before anything stops.

slurmctld takes no job beyond MaxJobCount, not the one that proves a start either, and where its queue has
tasks with numbers beyond MaxArraySize it loses them and jobs behind them as it reads its saved state
(seen with 24.11.5).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.apply.apply import read_text
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm import slurm_conf

_ASK_S = 30.0
_ROOM = 2  # for the job that proves a start
_DEFAULT_ARRAY, _DEFAULT_JOBS = 1001, 10_000  # slurm.conf(5)
_ROW = re.compile(r"(?m)^(N/A|[0-9]{1,10}) [A-Z_]+$")


@dataclass(frozen=True)
class Queue:
    """How many jobs Slurm knows, each task of an array counted, and the largest number of a task."""

    count: int
    last_task: int


def ask(machine: Machine, container: str) -> Queue | None:
    """None where squeue does not say."""
    argv = ["docker", "exec", container, "squeue", "-h", "-a", "-r", "-t", "all", "-o", "%K %T"]
    asked = machine.run(argv, deadline_s=_ASK_S)
    if not asked.ok:
        return None
    tasks = _ROW.findall(asked.stdout)
    return Queue(len(tasks), max((int(each) for each in tasks if each != "N/A"), default=-1))


def check(machine: Machine, container: str, conf: str) -> None:
    """Raises DshpcError where the jobs of that container do not fit this slurm.conf."""
    queue = ask(machine, container)
    if queue is None or not queue.count:
        return
    jobs = _number(slurm_conf.last(conf, "MaxJobCount"), _DEFAULT_JOBS)
    tasks = _number(slurm_conf.last(conf, "MaxArraySize"), _DEFAULT_ARRAY)
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


def _number(text: str | None, default: int) -> int:
    return int(text) if text and re.fullmatch(r"[0-9]{1,9}", text) else default
