"""The GPUs of a cluster's other nodes, beside those of the controller's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dshpc_setup.cluster import gpu_jobs, targets, workers
from dshpc_setup.cluster.gpu_jobs import ClusterGpus
from dshpc_setup.cluster.gpus import DEADLINE_S, GpusNow
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.facts import Gpus
from dshpc_setup.machine import Machine, Say, earlier
from dshpc_setup.probes.readings import Readings
from dshpc_setup.project.folder import Project
from dshpc_setup.terminal.sanitize import listed, plain

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
    if project is None or not workers.has_some(project):
        return look()
    seen: list[GpusNow] = []
    left_s = earlier(deadline_s, _HEADROOM_S)
    ended = machine.apart(
        {"others": lambda say: say(of_workers(machine, project, before, left_s))},
        deadline_s=deadline_s,
        meanwhile=lambda: seen.append(look()),
    )
    others = next((each for each in ended["others"].items if isinstance(each, tuple)), ())
    return replace(seen[0], others=others)


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
    names = tuple(each.node or "?" for each in (now, *now.others))
    raise usage_error(
        f"This cluster has no node {plain(node)}.",
        f"It has: {listed(names)}.",
        "List them: dshpc node list",
    )
