"""Who has jobs running, and whether they may be stopped: asked before a container is.

`--yes` does not answer that: it is said of this run, and the jobs may be other people's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from dshpc_setup.container.end_jobs import GRACE_S
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project import OWN, Project
from dshpc_setup.reporter import Reporter

FLAG = "--stop-jobs"
_ASK_S = 20.0
_CUT = "\x1f"  # between columns: a name holds every printable sign
_COLUMNS = ("JobArrayID", "UserName", "TimeUsed", "BatchFlag", "Requeue", "Name")
_SHOWN = 20
STOPPED = (
    f"{OWN}/stopped.json"  # when and by what the container was stopped last, for who had an srun
)


@dataclass(frozen=True)
class RunningJob:
    """A job that a stop would end; `begins_anew` at the next start."""

    id: str
    user: str
    name: str
    elapsed: str
    begins_anew: bool

    def __str__(self) -> str:
        then = "begins anew at the next start" if self.begins_anew else "ends for good"
        return f"job {self.id} of {self.user} ({self.name}), for {self.elapsed}: {then}"


def running_jobs(machine: Machine, container: str) -> tuple[RunningJob, ...] | None:
    """None where squeue did not answer in time; () where the controller is down: none can be lost then."""
    columns = ",".join(f"{name}:{_CUT}" for name in _COLUMNS)
    argv = ["squeue", "--noheader", "--states=R,S,CF", "-O", columns]
    asked = machine.run(["docker", "exec", container, *argv], deadline_s=_ASK_S)
    if asked.state == "timeout":
        return None
    return parse(asked.stdout) if asked.ok else ()


def parse(text: str) -> tuple[RunningJob, ...]:
    """What `squeue -O` prints of `_COLUMNS`."""
    rows = ([cell.strip() for cell in line.split(_CUT)] for line in text.split("\n"))
    return tuple(
        RunningJob(row[0], row[1], row[5], row[2], row[3] == row[4] == "1")
        for row in rows
        if len(row) == len(_COLUMNS) + 1
    )


def may_stop(
    machine: Machine,
    container: str,
    reporter: Reporter,
    *,
    agreed: bool,
    what: str,
    command: str,
    why: str = "",
) -> None:
    """Let the jobs that run there be stopped, or raise DshpcError; nothing is said where none runs.

    `agreed`: the flag was given. `what` is done to the cluster ("stopped"), by `command`; `why` it is.
    """
    jobs = running_jobs(machine, container)
    if jobs == ():
        return
    told = [f"  {job}" for job in (jobs or ())[:_SHOWN]]
    if jobs and len(jobs) > _SHOWN:
        told.append(f"  and {len(jobs) - _SHOWN} more: dshpc squeue")
    count = "jobs may run (squeue did not answer in time)" if jobs is None else _counted(len(jobs))
    if agreed:
        note = f"{count}, stopped now with {GRACE_S:.0f} s to save work ({FLAG})"
        reporter.note("\n".join([f"{note}{':' if told else '.'}", *told]))
        return
    question = f"The cluster would be {what}{f' ({why})' if why else ''}, and {count}:"
    if reporter.ask("\n".join([question, *told, "Stop them?"]), by_yes=False):
        return
    raise DshpcError(
        f"The cluster was not {what}: {count}.",
        "\n".join([*([f"It would be, because {why}."] if why else []), *told]),
        (
            "Wait until they have ended: dshpc squeue",
            f"Or stop them, with {GRACE_S:.0f} s to save work: {command} {FLAG}",
        ),
    )


def _counted(number: int) -> str:
    return "1 job runs" if number == 1 else f"{number} jobs run"


def remember(project: Project, command: str) -> None:
    """For the commands that end with the container: `cli.exec_trouble` says why they did."""
    if project.foreign is None:
        words = " ".join(command.split()[: 2 if command.startswith("dshpc ") else 1])
        project.write_json(STOPPED, {"at": time.time(), "command": words})
