"""What `dshpc-node observe` asks Slurm and the daemons' supervisor, and how the answers are read."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.observed.model import Daemon, Inside
from dshpc_setup.slurm.places import Places

_CUT, _NEXT = "\x1f", "\x1e"
_MOST_JOBS = 20

# What hangs or is down is not asked anything else: other commands wait longer than a ping does
_SLURM = r"""[ -e "$1/slurm.conf" ] || { echo 'no slurm.conf is in force'; exit 0; }
said=$(scontrol ping 2>&1); echo "$said"
case "$said" in *' is UP'*) ;; *) exit 0 ;; esac
printf '\036'; scontrol show config 2>/dev/null | grep '^SLURM_VERSION'
printf '\036'; scontrol show node -o 2>/dev/null
printf '\036'; squeue -h -a -t OUT_OF_MEMORY -o '%i %j' 2>/dev/null
# The processes first: slurmstepd stays until slurmctld knows that its job has ended
printf '\036'; ps -eo args= | sed -n 's/^slurmstepd: \[\([0-9]*\)\..*/\1/p'
printf '\036'; squeue -h -a -t RUNNING -O 'JobID:|,BatchFlag:|,TimeUsed:|' 2>/dev/null"""
_DAEMONS = r"""for name in slurmctld slurmd; do
printf '%s\037' "$name"; s6-svstat -o up,wantedup,pid,updownfor "$1/$name" 2>/dev/null
printf '\037'; s6-svdt "$1/$name" 2>/dev/null
printf '\037'; "$name" -V 2>/dev/null
printf '\036'; done"""


def slurm(machine: Machine, places: Places, deadline_s: float) -> dict[str, Any]:
    argv = ["sh", "-c", _SLURM, "sh", places.etc_slurm]
    return parse_slurm(machine.run(argv, deadline_s=deadline_s, cwd="/"))


def parse_slurm(asked: CommandResult) -> dict[str, Any]:
    """The controller, its version, its nodes, and the jobs that ended for want of memory."""
    parts = [*asked.stdout.split(_NEXT), "", "", "", "", ""]
    ping, version, nodes, jobs, processes, running, *_ = parts
    if " is UP" not in ping:
        lines = (line for line in ping.splitlines() if not line.startswith("*"))
        says = " ".join(" ".join(lines).split()) or asked.stderr.strip()
        if " is DOWN" in ping:
            return {"controller": "down", "controller_says": says}
        if asked.state == "timeout":
            says = says or f"scontrol ping did not answer within {asked.ms / 1000:.0f} s"
        return {"controller": "silent", "controller_says": says or f"scontrol: {asked.state}"}
    found = re.search(r"=\s*(\S+)", version)
    told = (line.partition(" ") for line in jobs.splitlines() if line.strip())
    return {
        "controller": "up",
        "running_version": found[1] if found else None,
        "node_lines": tuple(line for line in nodes.splitlines() if "NodeName=" in line),
        "without_process": parse_running(running, processes.split()),
        "out_of_memory": tuple(f"{job} ({name})" for job, _, name in told)[-_MOST_JOBS:],
    }


def parse_running(text: str, with_process: Collection[str]) -> tuple[str, ...]:
    """Of lines `id|batch flag|time used|`: batch jobs without a slurmstepd. One that began in the last
    minute may be about to get one."""
    rows = ([field.strip() for field in line.split("|")] for line in text.splitlines())
    found = (
        row[0]
        for row in rows
        if len(row) == 4 and row[1] == "1" and not re.fullmatch(r"0:\d\d", row[2])
    )
    return tuple(job for job in found if job.isdecimal() and job not in with_process)[-_MOST_JOBS:]


def daemons(machine: Machine, places: Places, deadline_s: float) -> tuple[Daemon, ...]:
    argv = ["sh", "-c", _DAEMONS, "sh", places.services]
    asked = machine.run(argv, deadline_s=deadline_s, cwd="/")
    rows = (row.split(_CUT) for row in asked.stdout.split(_NEXT))
    return tuple(parse_daemon(*row) for row in rows if len(row) == 4)


def parse_daemon(name: str, status: str, deaths: str, version: str) -> Daemon:
    """From `s6-svstat -o up,wantedup,pid,updownfor`, `s6-svdt` and `NAME -V`.

    s6 counts every end since the container's start, up to a hundred; an exit code of 0 is an end in
    good order, as a reconfiguration asks for. What s6 does not know is neither up nor wanted.
    """
    told = re.search(r"\d+(?:\.\d+)+\S*", version)
    bad = [
        line for line in deaths.splitlines() if not line.endswith(" exitcode 0") and line.strip()
    ]
    daemon = Daemon(name, False, wanted=False, exits=len(bad), version=told[0] if told else None)
    words = status.split()
    if len(words) != 4 or not re.fullmatch(r"-?[0-9]{1,10}", words[2]):
        return daemon
    up = words[0] == "true"
    return replace(
        daemon,
        up=up,
        wanted=words[1] == "true",
        pid=int(words[2]) if up else None,
        seconds=int(words[3]) if re.fullmatch("[0-9]{1,18}", words[3]) else None,
    )


def with_running(inside: Inside, controllers: str | None) -> Inside:
    """With the versions that run: slurmctld tells its own, and what slurmd registered with."""
    if inside.controller == "silent" and any(
        it.name == "slurmctld" and not it.up for it in inside.daemons
    ):
        inside = replace(inside, controller="down")
    nodes = (re.search(r"\sVersion=(\S+)", line) for line in inside.node_lines)
    versions = {"slurmctld": controllers, "slurmd": next((it[1] for it in nodes if it), None)}
    return replace(
        inside,
        daemons=tuple(
            replace(daemon, running_version=versions.get(daemon.name) if daemon.up else None)
            for daemon in inside.daemons
        ),
    )
