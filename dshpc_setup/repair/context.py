"""What a plan needs beside what doctor knows, and what a restart would stop. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dshpc_setup.cluster.stopping import running_jobs
from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers, daemon
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import RUNTIME, Project
from dshpc_setup.render.labels import PROJECT_LABEL
from dshpc_setup.repair.choice import roots
from dshpc_setup.repair.engine_repairs import DAEMON_JSON
from dshpc_setup.repair.model import Host, NodeOutOfService
from dshpc_setup.repair.node import taken_out
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.nodes import Node, parse_lines

_ASK_S = 20.0


def look_around(
    machine: Machine, project: Project | None, known: CheckInput, findings: tuple[Finding, ...]
) -> Host:
    """The node is asked only where something is wrong with Slurm."""
    set_up = project is not None and (Path(project.folder) / RUNTIME).is_file()
    container = project.runtime().get("container") if project and set_up else None
    name = container if isinstance(container, str) else None
    wrong = any(finding.section == "slurm" for finding in roots(findings))
    home = machine.env.get("HOME")
    return Host(
        uid=machine.uid,
        home=home if home and home.startswith("/") else None,
        starter=daemon.starter(machine),
        engine_installed=daemon.installed(machine),
        folder=str(project.folder) if project and set_up else None,
        container=name,
        other_features=other_features(machine.read(DAEMON_JSON).text or ""),
        nodes=_nodes(machine, known, name) if wrong and name else (),
    )


def other_features(text: str) -> tuple[str, ...]:
    """What daemon.json has under `features` beside cdi; () for one that cannot be read."""
    try:
        value = foreign.value(text)
    except ValueError:
        return ()
    features = value.get("features") if isinstance(value, dict) else None
    return tuple(sorted(set(features) - {"cdi"})) if isinstance(features, dict) else ()


def _nodes(machine: Machine, known: CheckInput, container: str) -> tuple[NodeOutOfService, ...]:
    inside, cluster = known.observed.inside, known.observed.cluster
    if inside is not None and inside.node_lines:
        return taken_out(parse_lines(inside.node_lines))
    if cluster is None or cluster.state != "running":
        return ()
    return taken_out(ask_nodes(machine, container))


def ask_nodes(machine: Machine, container: str) -> tuple[Node, ...]:
    """The nodes of the running container's controller; () where it does not answer."""
    try:
        return Slurm(machine, container, checked=True).node_lines(deadline_s=_ASK_S)
    except DshpcError:
        return ()


@dataclass(frozen=True)
class Running:
    """What ends with the engine. `jobs`: None where a controller did not answer."""

    containers: tuple[str, ...]
    jobs: int | None

    def words(self) -> str:
        """ "2 containers stop (a, b), and with them 3 running jobs"."""
        if not self.containers:
            return "no container runs"
        count = len(self.containers)
        stop = "1 container stops" if count == 1 else f"{count} containers stop"
        return f"{stop} ({', '.join(self.containers)}), and with {_jobs(self.jobs, count)}"


def _jobs(count: int | None, of: int) -> str:
    them = "it" if of == 1 else "them"
    if count is None:
        return f"{them} the jobs that run there: how many could not be asked"
    return f"{them} {'no' if count == 0 else count} running job{'' if count == 1 else 's'}"


def running(machine: Machine, cluster: str | None = None) -> Running:
    """All that runs on the engine, or the one container of the cluster. Raises DshpcError."""
    if cluster is not None:
        return Running((cluster,), _jobs_of(machine, cluster))
    done = machine.run(DOCKER.running(), deadline_s=_ASK_S)
    if not done.ok:
        raise containers.engine_error(done, "Docker could not be asked what runs")
    names = tuple(sorted(done.stdout.split()))
    ours = containers.containers(machine, PROJECT_LABEL) if names else ()
    return Running(names, _sum(_jobs_of(machine, name) for name in names if name in ours))


def _jobs_of(machine: Machine, container: str) -> int | None:
    jobs = running_jobs(machine, container)
    return None if jobs is None else len(jobs)


def _sum(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
