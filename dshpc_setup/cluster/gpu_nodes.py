"""The GPUs of a cluster's other nodes, beside those of the controller's own.

A node on another machine is asked nothing: what it offers, and who holds it, slurmctld knows. What its GPUs
measure is told there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dshpc_setup.cluster import gpu_jobs, targets, workers
from dshpc_setup.cluster.gpu_jobs import ClusterGpus
from dshpc_setup.cluster.gpus import DEADLINE_S, GpusNow
from dshpc_setup.container import far
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.jobs.allocated_gpus import Places
from dshpc_setup.machine import Machine, Say, earlier
from dshpc_setup.probes.readings import Readings
from dshpc_setup.project.folder import JOINED, Project
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm.holders import Holder

_HEADROOM_S = 0.5  # for each node's own deadline to be told by name


def with_others(
    machine: Machine,
    project: Project | None,
    look: Callable[[], GpusNow],
    *,
    before: Sequence[GpusNow] = (),
    deadline_s: float = DEADLINE_S,
) -> GpusNow:
    """What `look` sees, and those of the other nodes, asked meanwhile: neither waits for the other.

    `before`: an earlier answer of these; what cannot have changed since is not asked again.
    """
    if project is None or not have_some(machine, project):
        return look()
    seen: list[GpusNow] = []
    left_s = earlier(deadline_s, _HEADROOM_S)
    ended = machine.apart(
        {"others": lambda say: say(of_others(machine, project, before, left_s))},
        deadline_s=deadline_s,
        meanwhile=lambda: seen.append(look()),
    )
    others = next((each for each in ended["others"].items if isinstance(each, tuple)), ())
    return replace(seen[0], others=others)


def have_some(machine: Machine, project: Project) -> bool:
    """Whether the cluster of that folder may have other nodes, and its controller is here."""
    if project.read_note(JOINED):
        return False
    try:
        return workers.has_some(project) or project.settings(machine.env).listens
    except DshpcError:
        return False


def of_others(
    machine: Machine, project: Project, before: Sequence[GpusNow], deadline_s: float
) -> tuple[GpusNow, ...]:
    """Those of the nodes here and of those on other machines; never raises for what a cluster is like."""
    if not workers.has_some(project):  # a cluster has the ones or the others
        return of_far(machine, project, deadline_s)
    return of_workers(machine, project, before, deadline_s)


def of_far(machine: Machine, project: Project, deadline_s: float) -> tuple[GpusNow, ...]:
    """Of nodes on other machines, by what each has told slurmctld; () where that does not answer."""
    try:
        container = targets.target(project).container
    except DshpcError:
        return ()
    slurm = Slurm(machine, container)
    told = slurm.run("scontrol", "-o", "show", "node", deadline_s=earlier(deadline_s / 2))
    found = tuple(filter(None, map(far.told, told.stdout.splitlines()))) if told.ok else ()
    if not found:
        return ()
    holders = slurm.holders(deadline_s=earlier(deadline_s / 2)).value
    return tuple(_far_node(machine, places, simulated, holders) for places, simulated in found)


def _far_node(
    machine: Machine, places: Places, simulated: bool, holders: Sequence[Holder] | None
) -> GpusNow:
    node = places.node or "?"
    names = [f"{node}:{at}" for at in range(len(places.gpus))]
    devices = tuple(
        GpuDevice(gpu.index, gpu.vendor, gpu.name, gpu.uuid, None, gpu.memory_mib,
                  slurm_type=gpu.slurm_type, device_files=(name,))
        for name, gpu in zip(names, places.gpus, strict=True)
    )  # fmt: skip
    listed = tuple(
        SlurmGpu(gpu.slurm_type, (name,), gpu.uuid)
        for name, gpu in zip(names, places.gpus, strict=True)
    )
    gpus = Gpus("present" if devices else "absent", devices=devices, simulated=simulated)
    jobs = None if holders is None else tuple(_on(job, places) for job in holders if job.on(node))
    state = "ready" if jobs is not None else "error"
    said = ClusterGpus("", state, None, simulated, node, listed, jobs)
    return GpusNow(gpus, Readings(), said, taken=machine.clock())


def _on(job: Holder, places: Places) -> gpu_jobs.Job:
    """`held` are places in `listed`, which has the GPUs as the node offers them."""
    held = {(gpu.index, gpu.uuid) for gpu in places.of_gres(job.on(places.node))}
    at = tuple(at for at, gpu in enumerate(places.gpus) if (gpu.index, gpu.uuid) in held)
    count = sum(map(gpu_jobs.count_gpus, job.held))
    return gpu_jobs.Job(job.job_id, job.user or "?", job.name, count, at)


def of_workers(
    machine: Machine, project: Project, before: Sequence[GpusNow], deadline_s: float
) -> tuple[GpusNow, ...]:
    """Those of the other nodes, asked beside each other: one that is silent holds up no other."""
    try:
        there = workers.of_project(machine, project, targets.target(project).container)
    except DshpcError:
        return ()
    known = {each.node: each.cluster for each in before}
    left_s = earlier(deadline_s, _HEADROOM_S)

    def asking(node: str) -> Callable[[Say], None]:
        return lambda say: say(
            gpu_jobs.ask_worker(machine, there[node], node, left_s, known.get(node))
        )

    ended = machine.apart({node: asking(node) for node in there}, deadline_s=deadline_s)
    told = []
    for node, end in ended.items():
        said = end.items[0] if end.items else None
        if not isinstance(said, ClusterGpus):
            said = ClusterGpus(there[node].name, "timeout", end.detail, node=node)
        gpus = said.reported or Gpus("absent" if said.state == "ready" else "unsupported")
        told.append(GpusNow(gpus, Readings(), said, end.ms, taken=machine.clock()))
    return tuple(told)


def of_node(now: GpusNow, node: str) -> GpusNow:
    """What it has of one node; raises DshpcError (usage) where the cluster has none of that name."""
    for each in (replace(now, others=()), *now.others):
        if each.node == node:
            return each
    names = tuple(each.node for each in (now, *now.others) if each.node is not None)
    why = None if now.node is not None else "the controller did not answer"
    if now.cluster is not None and now.cluster.state == "missing":
        why = targets.DOWN
    raise targets.no_node(node, names, why)
