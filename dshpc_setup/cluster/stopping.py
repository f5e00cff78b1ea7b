"""Who has jobs running, and whether they may be stopped: asked before a container is.

`--yes` does not answer that: it is said of this run, and the jobs may be other people's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from dshpc_setup.container.end_jobs import GRACE_S
from dshpc_setup.engine.containers import Container
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import counted, listed, plain

FLAG = "--stop-jobs"
_ASK_S = 20.0
_COLUMNS = "JobArrayID UserName TimeUsed BatchFlag Requeue Name"
_SHOWN = 20
_OFFER = "Wait until they have ended, starting no other one meanwhile?"
_STEP = "slurmstepd: ["  # how a process calls itself that looks after a step of a job
STOPPED = (
    f"{OWN}/stopped.json"  # when and by what the container was stopped last, for who had an srun
)


class WhenIdle(Protocol):
    """The way to wait (idle.py); `asked`: by its flag."""

    asked: bool
    flag: str

    def wait(self, machine: Machine, container: str, reporter: Reporter) -> None: ...


@dataclass(frozen=True)
class MayStop:
    """Whether running jobs may be stopped without a question, or are waited for; and the command line that
    was given."""

    agreed: bool = False
    command: str = "configure-environment"
    when_idle: WhenIdle | None = None


@dataclass(frozen=True)
class RunningJob:
    """A job that a stop would end; `begins_anew` at the next start."""

    id: str
    user: str
    name: str
    elapsed: str
    begins_anew: bool
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.told()

    def told(self, again: str | None = None) -> str:
        """What becomes of it; `again`: of one that does not end for good."""
        again = again or "starts again at the next start"
        return f"{self.brief}: {again if self.begins_anew else 'ends for good'}"

    @property
    def title(self) -> str:
        """The same for as long as it runs."""
        return f"job {self.id} of {self.user} ({self.name})"

    @property
    def brief(self) -> str:
        return f"{self.title}, for {self.elapsed}"


def running_jobs(
    machine: Machine, container: str, nodes: frozenset[str] | None = None
) -> tuple[RunningJob, ...] | None:
    """Those on any of `nodes`, where that is said.

    None where some may run that nobody can name: squeue failed, and there are processes of jobs.
    """
    columns = _COLUMNS if nodes is None else f"NodeList {_COLUMNS}"
    told = Slurm(machine, container).rows(columns, "R,S,CF", deadline_s=_ASK_S)
    if told.asked.ok:
        if told.value is None:
            return None
        found = (job for job in told.value if nodes is None or nodes & set(job.nodes))
        return tuple(map(_running, found))
    shown = machine.run(DOCKER.processes(container, "pid,args"), deadline_s=_ASK_S)
    return () if shown.ok and _STEP not in shown.stdout else None


def _running(job: SlurmJob) -> RunningJob:
    return RunningJob(
        job.id, job.user, plain(job.name), job.elapsed, job.batch and job.requeue, job.nodes
    )


def for_good(machine: Machine, found: Container | None) -> str:
    """The jobs that are lost with the cluster, as lines that end a question; "" where none runs."""
    if found is None or not found.running:
        return ""
    jobs = running_jobs(machine, found.name)
    if jobs is None:
        return "\nJobs may run there (squeue gave no answer), and would end for good."
    lines = [f"  {job.brief}" for job in jobs]
    return "\n".join(["\nRunning now, and ended for good:", *lines]) if lines else ""


def may_stop(
    machine: Machine,
    container: str,
    reporter: Reporter,
    *,
    agreed: bool,
    what: str,
    command: str,
    why: str = "",
    nodes: frozenset[str] | None = None,
    when_idle: WhenIdle | None = None,
) -> None:
    """Let the jobs that run there be stopped, or raise DshpcError; nothing is said where none runs.

    `agreed`: the flag was given. `what` is done to the cluster ("stopped"), or to `nodes` of it,
    by `command`; `why` it is. `when_idle`: they are waited for instead, where that was asked for or is
    wanted now.
    """
    if when_idle is not None and when_idle.asked:
        when_idle.wait(machine, container, reporter)
        return
    jobs = running_jobs(machine, container, nodes)
    if jobs == ():
        return
    again = "is queued again" if nodes is not None else None
    told = [f"  {job.told(again)}" for job in (jobs or ())[:_SHOWN]]
    if jobs and len(jobs) > _SHOWN:
        told.append(f"  and {len(jobs) - _SHOWN} more: dshpc squeue")
    count = "jobs may run (squeue gave no answer)" if jobs is None else _counted(len(jobs))
    if agreed:
        note = f"{count}, stopped now with {GRACE_S:.0f} s to save work ({FLAG})"
        reporter.note("\n".join([f"{note}{':' if told else '.'}", *told]))
        return
    it = "The cluster" if nodes is None else _nodes(nodes)
    question = f"{it} would be {what}{f' ({why})' if why else ''}, and {count}:"
    if reporter.ask("\n".join([question, *told, "Stop them?"]), by_yes=False):
        return
    if when_idle is not None and reporter.ask(_OFFER, by_yes=False):
        when_idle.wait(machine, container, reporter)
        return
    raise DshpcError(
        f"{it} {'was' if nodes is None or len(nodes) == 1 else 'were'} not {what}: {count}.",
        "\n".join([*([f"It would be, because {why}."] if why else []), *told]),
        (
            "Wait until they have ended: dshpc squeue"
            if when_idle is None
            else f"Have it done as soon as none runs: {command} {when_idle.flag}",
            f"Or stop them, with {GRACE_S:.0f} s to save work: {command} {FLAG}",
        ),
    )


def _nodes(nodes: frozenset[str]) -> str:
    return f"Node{'' if len(nodes) == 1 else 's'} {listed(tuple(sorted(nodes)))}"


def _counted(number: int) -> str:
    return f"{counted(number, 'job')} {'is' if number == 1 else 'are'} running"


def remember(project: Project, command: str) -> None:
    """For the commands that end with the container: `cli.exec_trouble` says why they did."""
    if project.foreign is None:
        words = " ".join(command.split()[: 2 if command.startswith("dshpc ") else 1])
        project.write_json(STOPPED, {"at": time.time(), "command": words})
