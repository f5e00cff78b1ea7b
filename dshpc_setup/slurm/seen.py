"""What is asked of Slurm in one go, inside the container, for who looks at a cluster from outside.

A controller that hangs or is down is asked nothing else: other commands wait longer than a ping does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from dshpc_setup import slurm_releases
from dshpc_setup.machine import CommandResult

_NEXT = "\x1e"
_RUNNING = "JobID:|,BatchFlag:|,TimeUsed:|,BatchHost:|"
_STEPS = "JobID:|,StepID:|,TimeUsed:|"
_ALL = rf"""[ -e "$1/slurm.conf" ] || {{ echo 'no slurm.conf is in force'; exit 0; }}
said=$(scontrol ping 2>&1); echo "$said"
case "$said" in *' is UP'*) ;; *) exit 0 ;; esac
printf '\036'; scontrol show config 2>/dev/null | grep '^SLURM_VERSION'
# Of several nodes this one has the processes of its own jobs; a worker on another machine looks at itself
node=; [ -z "${{DSHPC_ROLE:-}}" ] || read -r node </run/dshpc/node
own=; [ -z "${{DSHPC_CONTROLLER:-}}" ] || own=$node
printf '\036'; scontrol show node -o $own 2>/dev/null
printf '\036'; squeue -h -a -t OUT_OF_MEMORY -o '%i %j' 2>/dev/null
# The processes first: slurmstepd stays until slurmctld knows that its job has ended
printf '\036'; ps -eo args= | sed -n 's/^slurmstepd: \[\([^]]*\)\].*/\1/p'
printf '\036'; squeue -h -a -t RUNNING ${{node:+-w "$node"}} -O '{_RUNNING}' 2>/dev/null |
    sed -n "s/^\\([^|]*|[^|]*|[^|]*|\\)${{node:-[^|]*}}|.*/\\1/p"
printf '\036'; squeue -h -a -s ${{node:+-w "$node"}} -O '{_STEPS}' 2>/dev/null
printf '\036'; ! grep -q '^AccountingStorageType=.*/slurmdbd' "$1/slurm.conf" || sacctmgr ping 2>&1"""

_FAILED = r"""for job in $(squeue -h -a -t FAILED -S i -o %A | tail -n "$1"); do
scontrol -o show job "$job" 2>/dev/null; done"""
_FAILED_JOB = re.compile(r"^JobId=(\d+)\s.*\sExitCode=(\d+):0\s.*\sStdErr=(/.*?)\sStdIn=")


class Controller(NamedTuple):
    """`state`: up | down | silent, and then what it says. Of one that is up: the lines of its nodes, (job,
    name) of those that ran out of memory, the steps with a process ("17.batch"), and lines of
    the jobs and of the steps that run."""

    state: str
    says: str = ""
    version: str | None = None
    node_lines: tuple[str, ...] = ()
    out_of_memory: tuple[tuple[str, str], ...] = ()
    with_process: tuple[str, ...] = ()
    running: str = ""  # id|batch flag|time used|
    steps: str = ""  # job|step|time used|
    accounting: str = ""  # what `sacctmgr ping` says, where accounting is on


def all_argv(etc_slurm: str) -> list[str]:
    return ["sh", "-c", _ALL, "sh", etc_slurm]


def parse_all(asked: CommandResult) -> Controller:
    parts = [*asked.stdout.split(_NEXT), *[""] * 7]
    ping, version, nodes, jobs, processes, running, steps, accounting, *_ = parts
    if not slurm_releases.says("controller_up").search(ping):
        lines = (line for line in ping.splitlines() if not line.startswith("*"))
        says = " ".join(" ".join(lines).split()) or asked.stderr.strip()
        down = slurm_releases.says("controller_down").search(ping) is not None
        return Controller("down" if down else "silent", says)
    found = re.search(r"=\s*(\S+)", version)
    told = (line.partition(" ") for line in jobs.splitlines() if line.strip())
    return Controller(
        "up",
        version=found[1] if found else None,
        node_lines=tuple(line for line in nodes.splitlines() if "NodeName=" in line),
        out_of_memory=tuple((job, name) for job, _, name in told),
        with_process=tuple(processes.split()),
        running=running,
        steps=steps,
        accounting=accounting.strip(),
    )


class Failed(NamedTuple):
    """A job that failed lately, with its exit code, and where its errors went."""

    job: str
    code: str
    errors: str


def failed_argv(most: int) -> list[str]:
    """The latest of those that Slurm still knows."""
    return ["sh", "-c", _FAILED, "sh", str(most)]


def parse_failed(text: str) -> tuple[Failed, ...]:
    found = map(_FAILED_JOB.match, text.splitlines())
    return tuple(Failed(*match.groups()) for match in found if match)
