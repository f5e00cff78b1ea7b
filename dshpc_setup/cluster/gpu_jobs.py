"""Which jobs hold which GPUs, asked from the running cluster.

Slurm counts a node's GPUs in the order of slurmd's own list, and `IDX` of a job are places in it. That
is not the order of gres.conf: types stand together as slurm.conf's `Gres=` names them, and with
AutoDetect slurmd sorts anew. So slurmd is asked for its list (docs/decisions/0001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dshpc_setup import codec, gpu_vendors
from dshpc_setup.cluster.targets import one_user, ours, target
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers, start_report
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Gpus
from dshpc_setup.jobs.allocated_gpus import parse_held as parse_held
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.observed import idle
from dshpc_setup.observed.idle import IdleGpu
from dshpc_setup.project.folder import Project
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm.holders import Holder
from dshpc_setup.slurm.nodes import parse_gres
from dshpc_setup.slurm.paths import Paths

_MOST = 4096  # GPUs of one node, letters of their text; what claims more is damaged


@dataclass(frozen=True)
class Job:
    """A job that holds GPUs; `held` are places in slurmd's list, of this node alone."""

    job_id: str  # as squeue shows it: "17", "17_2" of an array, "17+1" of a heterogeneous one
    user: str
    name: str
    gpus_of_job: int  # on all its nodes
    held: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "user": self.user,
            "name": self.name,
            "gpus_of_job": self.gpus_of_job,
        }


@dataclass(frozen=True)
class ClusterGpus:
    """What a cluster says of its GPUs; `jobs` and `listed` are None where that is not known."""

    container: str
    state: str  # ready | starting: STEP | failed | exited | ... | missing | error | timeout
    detail: str | None = None
    simulated: bool | None = None
    node: str | None = None
    listed: tuple[SlurmGpu, ...] | None = None
    jobs: tuple[Job, ...] | None = None
    reported: Gpus | None = None  # of a simulated cluster: the GPUs that it has
    idle: tuple[IdleGpu, ...] = ()
    run: tuple[str, str | None] = ("", None)  # the container's id and when it was started

    @property
    def hung(self) -> bool:
        return self.state == "timeout"

    def to_json(self) -> dict[str, Any]:
        return {"container": self.container, "state": self.state, "detail": self.detail}


def ask(
    machine: Machine, project: Project, deadline_s: float, before: ClusterGpus | None = None
) -> ClusterGpus | None:
    """The cluster of that folder, None where none was set up; never raises for what it is like.

    `before` is an earlier answer: what cannot have changed since then is not asked again.
    """
    try:
        cluster = target(project)
    except DshpcError:
        return None
    now = ClusterGpus(cluster.container, "missing", "It is down. Start it: dshpc up")
    try:
        found = ours(machine, cluster)
        if found is None:
            return now
        if found.status != "running":
            detail = f"It {containers.how(found.status)}. Start it: dshpc up"
            return replace(now, state=found.status, detail=detail)
        now = replace(now, run=(found.id, found.started), detail=None)
        if before is not None and before.run == now.run and before.listed is not None:
            now = replace(before, state="ready", detail=None, jobs=None)
        else:
            now = _standing(machine, now, deadline_s)
        return _with_jobs(machine, found, now, deadline_s) if now.state == "ready" else now
    except DshpcError as error:
        state = "timeout" if error.exit_code == Exit.INCOMPLETE else "error"
        return replace(now, state=state, detail=error.brief)


def ask_worker(
    machine: Machine,
    found: Container,
    node: str,
    deadline_s: float,
    before: ClusterGpus | None = None,
) -> ClusterGpus:
    """The same of a worker, by its container; never raises for what it is like."""
    now = ClusterGpus(found.name, found.status, node=node, run=(found.id, found.started))
    if found.status != "running":
        return replace(
            now,
            detail=f"It {containers.how(found.status)}. Start it: dshpc node resume {node}",
        )
    try:
        if before is not None and before.run == now.run and before.listed is not None:
            now = replace(before, state="ready", detail=None, jobs=None)
        else:
            now = _standing(machine, now, deadline_s, Paths(worker=node))
        return _with_jobs(machine, found, now, deadline_s) if now.state == "ready" else now
    except DshpcError as error:
        state = "timeout" if error.exit_code == Exit.INCOMPLETE else "error"
        return replace(now, state=state, detail=error.brief)


_HERE = Paths()


def _standing(
    machine: Machine, now: ClusterGpus, deadline_s: float, paths: Paths = _HERE
) -> ClusterGpus:
    """What stays as it is until the next start."""
    report = start_report.ask(machine, now.container)
    if not report.get("ready"):
        failure = report.get("failure")
        brief = failure.get("brief") if isinstance(failure, dict) else None
        return replace(now, state=str(report.get("phase") or "starting"), detail=brief)
    simulated = report.get("simulated")
    node = report.get("node")
    now = replace(
        now,
        state="ready",
        simulated=simulated if isinstance(simulated, bool) else None,
        node=node if isinstance(node, str) else None,
        idle=idle.read(report),
    )
    if simulated:
        argv = ["cat", f"{paths.own}/facts.json"]
        told = containers.exec_in(machine, now.container, argv, deadline_s=deadline_s)
        if told.state == "timeout":
            return _failed(now, told, "its facts cannot be read")
        now = replace(now, reported=parse_facts(told.stdout))
    slurm = Slurm(machine, now.container, checked=True)
    listed = slurm.gpus(Paths().ask, deadline_s=deadline_s)
    if listed.value is None:
        return _failed(now, listed.asked, "slurmd does not list its GPUs")
    return replace(now, listed=listed.value)


def _with_jobs(
    machine: Machine, found: Container, now: ClusterGpus, deadline_s: float
) -> ClusterGpus:
    told = Slurm(machine, now.container, checked=True).holders(deadline_s=deadline_s)
    if told.value is None:
        return _failed(now, told.asked, "squeue does not list the jobs")
    jobs = jobs_of(told.value, now.node)
    if jobs and (name := one_user(machine, found)) is not None:
        jobs = tuple(replace(each, user=name) for each in jobs)
    return replace(now, jobs=jobs)


def _failed(now: ClusterGpus, asked: CommandResult, what: str) -> ClusterGpus:
    if asked.state == "timeout":
        return replace(now, state="timeout", detail=f"{what}: no answer in time")
    last = asked.text.splitlines()[-1:] if not asked.ok else []
    return replace(now, state="error", detail=": ".join([what, *last]))


def jobs_of(holders: Sequence[Holder], node: str | None) -> tuple[Job, ...]:
    """Those that hold GPUs, and which of this node's."""
    return tuple(
        Job(each.job_id, each.user or "?", each.name, count, parse_held(each.on(node)))
        for each in holders
        if (count := sum(map(count_gpus, each.held)))
    )


def count_gpus(text: str) -> int:
    """ "gpu:h100:2(IDX:0-1),gpu:t4:1(IDX:2)" -> 3."""
    counts = parse_gres(text[:_MOST])
    return sum(count for name, count in counts.items() if name.split(":")[0] == "gpu")


@dataclass(frozen=True)
class _Facts:
    gpus: Gpus


def parse_facts(text: str) -> Gpus | None:
    """The GPUs of a `dshpc.facts/1` object; None where it is none, or of another shape."""
    try:
        told = codec.from_json(_Facts, foreign.value(text)).gpus
    except (ValueError, RecursionError):
        return None
    known = all(gpu_vendors.find(gpu.vendor) is not None for gpu in told.devices)
    return replace(told, simulated=True) if known else None
