"""What jobs use and have used, asked of the cluster's nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dshpc_setup import codec
from dshpc_setup.cluster.targets import one_user, ours, target
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Exit, Fix
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.project.refusals import need_own_engine
from dshpc_setup.usage.live import Kept
from dshpc_setup.usage.sums import Sum

_SCHEMA = "dshpc.node-use/1"
_ASK_S = 60.0


@dataclass(frozen=True)
class NodeUse:
    """`live` are jobs that run, `sums` are of those that have ended."""

    live: Kept = field(default_factory=Kept)
    sums: tuple[Sum, ...] = ()


def ask_node(machine: Machine, container: str, *, deadline_s: float = _ASK_S) -> NodeUse:
    """Of the node in that container; raises DshpcError where it gives no answer."""
    asked = containers.exec_in(
        machine, container, ["dshpc-node", "use"], deadline_s=deadline_s, user="0"
    )
    try:
        if asked.ok:
            return codec.from_json(NodeUse, foreign.value(asked.stdout), _SCHEMA)
    except ValueError:
        pass
    late = asked.state == "timeout"
    raise DshpcError(
        f"{container} does not say what jobs have used.",
        asked.text or f"dshpc-node use ended with {asked.code} ({asked.state}).",
        (Fix("See what is wrong", "dshpc doctor", step="look"),),
        exit_code=Exit.INCOMPLETE if late else Exit.ERROR,
    )


def ask(machine: Machine, project: Project, *, deadline_s: float = _ASK_S) -> NodeUse:
    """Of the project's cluster; raises DshpcError where it is not up.

    A container that has one user has it as root, and its files and jobs are those of who asks.
    """
    cluster = target(project)
    found = ours(machine, cluster)
    if found is None:
        need_own_engine(str(project.folder), project.runtime())
    if found is None or found.status != "running":
        raise DshpcError(
            "The cluster is not running.",
            "What jobs have used is kept in its state volume, which its container reads.",
            (Fix("Start it", "dshpc up", step="after"),),
        )
    told = ask_node(machine, cluster.container, deadline_s=deadline_s)
    name = one_user(machine, found)
    if name is None:
        return told
    return replace(
        told,
        sums=tuple(
            replace(each, user=name if each.user == "root" else each.user) for each in told.sums
        ),
    )
