"""The cluster's other nodes as doctor sees them: asked beside each other, with one deadline."""

from __future__ import annotations

import os
from collections.abc import Callable

from dshpc_setup.checkup.inside_answer import said_inside
from dshpc_setup.cluster import workers
from dshpc_setup.engine import containers
from dshpc_setup.engine.containers import Container
from dshpc_setup.engine.inspecting import ask_inside
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Ended, Machine, Say, earlier
from dshpc_setup.observed.model import NodeSeen, WorkFolder
from dshpc_setup.project.folder import Project

_EACH_S = 2.0  # of a machine that carries many nodes, for each of them


def more_s(project: Project | None) -> float:
    """How much longer all of them may take than one: they share this machine's CPUs."""
    return _EACH_S * workers.count(project) if project is not None else 0.0


def look(
    machine: Machine, project: Project, container: str, deadline_s: float
) -> tuple[NodeSeen, ...]:
    """Those with a container on this machine; one that does not answer says so, and holds up no other."""
    try:
        there = workers.of_project(machine, project, container)
    except DshpcError:
        return ()
    left_s = earlier(deadline_s)
    work = _work(project)

    def asking(name: str) -> Callable[[Say], None]:
        return lambda say: say(ask_inside(machine, name, left_s, work))

    running = {node: each.name for node, each in there.items() if each.status == "running"}
    ended = machine.apart(
        {node: asking(name) for node, name in running.items()}, deadline_s=deadline_s
    )
    return tuple(_seen(node, each, ended.get(node)) for node, each in there.items())


def work_here(project: Project) -> WorkFolder | None:
    """None where it is not to be seen by us, who may be another user."""
    work = _work(project)
    try:
        return None if work is None else WorkFolder(os.stat(work).st_ino)
    except OSError:
        return None


def _work(project: Project) -> str | None:
    work = project.runtime().get("work")
    return work if isinstance(work, str) else None


def _seen(node: str, container: Container, end: Ended | None) -> NodeSeen:
    if end is None:
        how = f"Its container {containers.how(container.status)}."
        return NodeSeen(node, container.status, problem=how)
    if not end.items:
        why = "It did not answer in time." if end.state == "timeout" else end.detail
        return NodeSeen(node, container.status, problem=why or "It gave no answer.")
    inside, problem = said_inside(end.items[0], container.name)
    return NodeSeen(node, container.status, inside, problem or None)
