"""Workers that come, go or are made anew with a run of configure-environment: no other node notices."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dshpc_setup.apply.apply import Change
from dshpc_setup.cluster import stopping
from dshpc_setup.cluster.start import text_of
from dshpc_setup.cluster.stopping import MayStop
from dshpc_setup.cluster.workers import found
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers
from dshpc_setup.engine.containers import Container
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Compose
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import LABEL, Project
from dshpc_setup.render.labels import RENDERED_LABEL, part_of, parts, rendered_label
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.terminal.reporter import Reporter

_ASK_S = 20.0
_GONE_S = 20.0
_FORGET_S = 45.0  # it waits for slurmctld's next write
_POLL_S = 0.5


@dataclass(frozen=True)
class Changes:
    """Nodes by what is to become of them; containers of those that are there."""

    gone: Mapping[str, Container]  # no longer wanted
    renewed: Mapping[str, Container]  # to be made anew
    new: tuple[str, ...]
    kept: Mapping[str, Container]

    @property
    def ending(self) -> dict[str, Container]:
        return {**self.gone, **self.renewed}

    @property
    def any(self) -> bool:
        return bool(self.ending or self.new)


def foreseen(
    machine: Machine, project: Project, settings: Settings, image: str, file: Change
) -> Changes:
    """What has to become of the workers so that they are those of this compose file.

    Where neither it nor the one before has any, nobody is asked. Raises DshpcError where a container's
    name is somebody else's.
    """
    folder, text = str(project.folder), text_of(file)
    wanted = settings.worker_containers
    if not wanted and not parts(file.old or "")[1]:
        return Changes({}, {}, (), {})
    there = found(machine, folder, settings.container)
    for node in wanted.keys() - there.keys():
        _refuse_taken(machine, wanted[node])
    kept = {node: each for node, each in there.items() if node in wanted}
    renewed = {node: each for node, each in kept.items() if _is_other(each, image, text)}
    return Changes(
        {node: each for node, each in there.items() if node not in wanted},
        renewed,
        tuple(node for node in wanted if node not in there),
        {node: each for node, each in kept.items() if node not in renewed},
    )


def _is_other(there: Container, image: str, text: str) -> bool:
    part = part_of(text, there.name)
    label = None if part is None else rendered_label(part)
    return there.image_id != image or label != there.labels.get(RENDERED_LABEL)


def _refuse_taken(machine: Machine, name: str) -> None:
    other = containers.inspect(machine, name)
    if other is None:
        return
    owner = other.labels.get(LABEL)
    raise DshpcError(
        f"The name {name} is taken by another container"
        + (f", of the cluster in {owner}." if owner else "."),
        "A worker of this cluster would have that name. Nothing was changed.",
        (
            f"Remove it, if nobody needs it: docker rm -f {name}",
            "Or choose another name for this cluster: configure-environment --prefix NAME",
        ),
    )


def may_end(
    machine: Machine,
    settings: Settings,
    changes: Changes,
    may: MayStop,
    reporter: Reporter,
) -> None:
    """Let the jobs on nodes that go, or are made anew, be ended; raises DshpcError where nobody agrees."""
    nodes = {node for node, each in changes.ending.items() if each.running}
    if not nodes:
        return
    controller = containers.inspect(machine, settings.container)
    if controller is None or not controller.running:
        return
    what = "removed" if not changes.renewed else "recreated"
    stopping.may_stop(
        machine,
        settings.container,
        reporter,
        agreed=may.agreed,
        what=what,
        command=may.command,
        nodes=frozenset(nodes),
        when_idle=may.when_idle,
    )


def make_way(machine: Machine, changes: Changes, reporter: Reporter) -> None:
    """The containers that go, or are made anew, end: each says so to the controller as it stops."""
    for node, each in changes.ending.items():
        reporter.progress(f"removing node {node}")
        containers.remove(machine, each.name)


def bring_up(
    machine: Machine,
    project: Project,
    settings: Settings,
    compose: Compose,
    changes: Changes,
    reporter: Reporter,
) -> bool:
    """Those that are missing or down are started, and no other container is touched; whether any was."""
    down = [each for each in changes.kept.values() if not each.running]
    if not (changes.new or changes.renewed or down):
        return False
    reporter.progress("starting the nodes")
    compose_tool.up(
        machine,
        compose,
        project.folder,
        settings.prefix,
        on_line=reporter.progress,
        recreate=False,
    )
    return True


def settle(machine: Machine, container: str, known: Sequence[str], wanted: Sequence[str]) -> bool:
    """Workers that the controller knows (`known`: all of its nodes) and that are none any more are
    forgotten; whether there were some. Raises DshpcError where one of them cannot be."""
    prefix = container.removesuffix("-slurm")
    name = re.compile(rf"{re.escape(prefix)}-[0-9]+")
    over = [each for each in known if name.fullmatch(each) and each not in wanted]
    for node in over:
        forget(machine, container, node)
    return bool(over)


def forget(machine: Machine, container: str, node: str) -> None:
    """Slurm knows no such node any more, has written that down, and offers nothing of it."""
    slurm = Slurm(machine, container, checked=True)
    slurm.take_down(node, "dshpc:removed", deadline_s=_ASK_S)
    until = machine.clock() + _GONE_S
    while not (done := slurm.delete_node(node, deadline_s=_ASK_S)).ok:
        if machine.clock() >= until:
            raise DshpcError(
                f"Node {node} could not be taken out of the cluster.",
                done.text,
                (f"See what runs there: dshpc squeue -w {node}", "Then run this again."),
            )
        time.sleep(_POLL_S)
    words = ["dshpc-node", "forget-node", node]
    if not (done := containers.exec_in(machine, container, words, deadline_s=_FORGET_S)).ok:
        raise DshpcError(
            f"Node {node} has left the cluster, but what the cluster has kept of it was not removed.",
            done.text,
            ("See what is wrong there: dshpc doctor",),
        )
