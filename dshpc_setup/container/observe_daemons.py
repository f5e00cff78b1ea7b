"""What `dshpc-node observe` asks Slurm and the daemons' supervisor, and how the answers are read."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.observed.model import Daemon, Inside
from dshpc_setup.slurm import associations, seen
from dshpc_setup.slurm.nodes import parse_lines
from dshpc_setup.slurm.paths import Paths

_CUT, _NEXT = "\x1f", "\x1e"
_MOST_JOBS = 20

_DAEMONS = r"""more=; [ ! -e "$2" ] || more=slurmrestd; [ ! -e "$3" ] || more="$more slurmdbd mariadb"
# A worker on another machine has no slurmctld, whose service stays down
first=slurmctld; [ -z "${DSHPC_CONTROLLER:-}" ] || first=; for name in $first slurmd $more; do
printf '%s\037' "$name"; s6-svstat -o up,wantedup,pid,updownfor "$1/$name" 2>/dev/null
printf '\037'; s6-svdt "$1/$name" 2>/dev/null
printf '\037'; [ "$name" = mariadb ] || "$name" -V 2>/dev/null
printf '\036'; done"""


def slurm(machine: Machine, paths: Paths, deadline_s: float) -> dict[str, Any]:
    argv = seen.all_argv(paths.etc_slurm)
    return parse_slurm(machine.run(argv, deadline_s=deadline_s, cwd="/"))


def parse_slurm(asked: CommandResult) -> dict[str, Any]:
    """The controller, its version, its nodes, and the jobs that ended for want of memory."""
    found = seen.parse_all(asked)
    if found.state != "up":
        late = f"scontrol ping did not answer within {asked.ms / 1000:.0f} s"
        says = found.says or (late if asked.state == "timeout" else f"scontrol: {asked.state}")
        return {"controller": found.state, "controller_says": says}
    lacking = tuple(f"{job} ({name})" for job, name in found.out_of_memory)
    return {
        "controller": "up",
        "running_version": found.version,
        "node_lines": found.node_lines,
        "without_process": parse_running(found.running, found.with_process),
        "steps_without_process": parse_steps(found.steps, found.with_process),
        "accounting_up": associations.is_up(found.accounting) if found.accounting else None,
        "out_of_memory": lacking[-_MOST_JOBS:],
    }


def parse_running(text: str, steps: Collection[str]) -> tuple[str, ...]:
    """Of lines `id|batch flag|time used|`: batch jobs without a slurmstepd of any step ("17.batch"). One
    that began in the last minute may be about to get one. Those of salloc have one only now and then."""
    rows = ([field.strip() for field in line.split("|")] for line in text.splitlines())
    with_process = {step.partition(".")[0] for step in steps}
    found = (row[0] for row in rows if len(row) == 4 and row[1] == "1" and not _is_young(row[2]))
    return tuple(job for job in found if job.isdecimal() and job not in with_process)[-_MOST_JOBS:]


def parse_steps(text: str, steps: Collection[str]) -> tuple[str, ...]:
    """Of lines `job|step|time used|`: steps of srun without a slurmstepd, as people know them ("3_1.0", of
    job 4: the srun hangs, and so does what it was started by)."""
    rows = ([field.strip() for field in line.split("|")] for line in text.splitlines())
    found = (
        (f"{row[0]}.{row[1].rpartition('.')[2]}", row[1])
        for row in rows
        if len(row) == 4 and row[0].isdecimal() and not _is_young(row[2])
    )
    whole = ((step, name) for step, name in found if re.fullmatch(r"[0-9]+\.[0-9]+", step))
    return tuple(name for step, name in whole if step not in steps)[-_MOST_JOBS:]


def _is_young(time_used: str) -> bool:
    return re.fullmatch(r"0:\d\d", time_used) is not None


def daemons(machine: Machine, paths: Paths, deadline_s: float) -> tuple[Daemon, ...]:
    asked_for = (paths.rest_listen, paths.database_conf)
    argv = ["sh", "-c", _DAEMONS, "sh", paths.services, *asked_for]
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
    nodes = (node.version for node in parse_lines(inside.node_lines))
    versions = {"slurmctld": controllers, "slurmd": next(filter(None, nodes), None)}
    return replace(
        inside,
        daemons=tuple(
            replace(daemon, running_version=versions.get(daemon.name) if daemon.up else None)
            for daemon in inside.daemons
        ),
    )
