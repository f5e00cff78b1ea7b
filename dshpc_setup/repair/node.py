"""A node that takes no jobs: which are ours to resume, and how. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dshpc_setup.engine_client import DOCKER
from dshpc_setup.repair.model import Host, Made, NodeOutOfService, Refusal, Repair
from dshpc_setup.slurm import client
from dshpc_setup.slurm.nodes import Node

_BY_RECONFIGURE = Refusal("A reconfigure takes it back.", by_reconfigure=True)

# As nodes are called here; a list or a range ("n[1-9]") would reach others as well
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BEFORE_RECONFIGURE = "dshpc:reconfigure"  # our own advice: no new jobs until that is done


def taken_out(nodes: Sequence[Node]) -> tuple[NodeOutOfService, ...]:
    """Those that are drained or down."""
    return tuple(
        NodeOutOfService(
            node.name,
            node.states,
            node.why,
            node.who or "",
            node.own_doing and not node.has_former_key,
        )
        for node in nodes
        if {"DRAIN", "DRAINED", "DOWN"} & set(node.states)
    )


def repair(here: Host) -> Made:
    """Resume what is our own doing."""
    if not here.nodes or here.container is None:
        return Refusal("It is not known who took it out.")
    own = [out for out in here.nodes if out.own and _NAME.fullmatch(out.name)]
    if not own:
        said = ", ".join(
            dict.fromkeys(f"{out.who or 'somebody'}: {out.reason}" for out in here.nodes)
        )
        return Refusal(
            f"It was not taken out by our own doing, or for what may not be over ({said})."
        )
    if any(_by_reconfigure(out) for out in own):
        return _BY_RECONFIGURE
    return tuple(
        Repair(
            "resume-node",
            f"Resume the node {out.name} ({out.reason or 'no reason'})",
            (resume_argv(here.container, out.name),),
            out.name,
        )
        for out in own
    )


def _by_reconfigure(out: NodeOutOfService) -> bool:
    """Whether a resume does not help: the controller refuses what the node has, or a reconfigure is due."""
    return bool({"INVALID_REG", "INVAL"} & set(out.states)) or out.reason == _BEFORE_RECONFIGURE


def resume_argv(container: str, name: str) -> tuple[str, ...]:
    """By the engine: `dshpc scontrol` is the caller himself, and only root may."""
    return tuple(DOCKER.run_in(container, *client.resume_argv(name)))
