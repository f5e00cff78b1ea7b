"""The cluster of a project folder: its names, its container, and the compose tool that starts it.

Everything acts on the container that `.dshpc/runtime.json` names, and only where its label says
that it belongs to this folder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dshpc_setup.cluster import workers
from dshpc_setup.cluster.owner import steps as owner_steps
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers
from dshpc_setup.engine.containers import Container
from dshpc_setup.engine.privilege import caller
from dshpc_setup.engine_client import IDS_LABEL
from dshpc_setup.errors import DshpcError, Exit, Fix, usage_error
from dshpc_setup.facts import Compose
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.project.refusals import need_right_variable
from dshpc_setup.render.labels import PROJECT_LABEL
from dshpc_setup.terminal.sanitize import listed, plain

_ASK_S = 20.0
COMPOSE_LABEL = "com.docker.compose.project"


@dataclass(frozen=True)
class Target:
    """The cluster of a project folder."""

    project: Project
    container: str
    prefix: str
    work: str
    former: bool = False  # another one of the same folder: its files there are not this one's

    def named(self, prefix: str) -> Target:
        """Another cluster of the same folder."""
        return replace(self, container=f"{prefix}-slurm", prefix=prefix, former=True)

    @property
    def has_compose_file(self) -> bool:
        return not self.former and (self.project.folder / compose_tool.FILE).is_file()


def target(project: Project) -> Target:
    """Raises DshpcError where configure-environment has not been run in the folder to its end."""
    runtime = project.runtime()
    if not {"container", "prefix", "work"} <= runtime.keys():
        need_right_variable(str(project.folder))
        raise DshpcError(
            f"There is no cluster in {project.folder}.",
            f"It holds no usable {OWN}/runtime.json, which configure-environment writes.",
            ("Go to the folder where you ran configure-environment, or run it here.",),
        )
    return Target(project, str(runtime["container"]), str(runtime["prefix"]), str(runtime["work"]))


def container_of(machine: Machine, project: Project, node: str | None) -> Container | None:
    """Of a node, by default the controller's own; None where the cluster is down.

    Raises DshpcError (usage) where the cluster has no node of that name.
    """
    cluster = target(project)
    if node in (None, cluster.prefix):
        return ours(machine, cluster)
    others = workers_of(machine, cluster)
    if node not in others:
        down = DOWN if ours(machine, cluster) is None else None
        raise no_node(node or "", (cluster.prefix, *others), down)
    return others[node]


DOWN = "the cluster is down"


def no_node(name: str, there: tuple[str, ...], silent: str | None = None) -> DshpcError:
    """Of a name that no node has, of those that there are; `silent`: why not all of them are known."""
    if silent is not None:
        return DshpcError(
            f"Whether this cluster has a node {plain(name)} is not known: {silent}.",
            "",
            (Fix("See its state", "dshpc status", step="look"),),
            Exit.INCOMPLETE,
        )
    return usage_error(
        f"This cluster has no node {plain(name)}.",
        f"It has: {listed(there)}.",
        "List them: dshpc node list",
    )


def one_user(machine: Machine, found: Container) -> str | None:
    """Who a container's root is on this machine, where root is all that it has: its jobs are those of who
    asks. None where it has users."""
    return caller(machine).name if found.labels.get(IDS_LABEL) == "single" else None


def workers_of(machine: Machine, cluster: Target) -> dict[str, Container]:
    return workers.of_project(machine, cluster.project, cluster.container)


def ours(machine: Machine, cluster: Target) -> Container | None:
    """The cluster's container, None where there is none; one that is not ours is refused."""
    found = containers.inspect(machine, cluster.container)
    owner = None if found is None else found.labels.get(PROJECT_LABEL)
    if found is None or owner == str(cluster.project.folder):
        return found
    if owner is None:
        raise DshpcError(
            f"The container {cluster.container} is not one of dsHPC's.",
            f"It was made from the image {found.image} by something else; it is left alone.",
            ("Choose another name: configure-environment --prefix NAME",),
        )
    raise DshpcError(
        f"The container {cluster.container} belongs to the cluster in {owner}.",
        f"This is {cluster.project.folder}.",
        tuple(owner_steps(owner)),
    )


def compose_of(machine: Machine, cluster: Target) -> Compose:
    if not cluster.has_compose_file:
        raise DshpcError(
            f"{cluster.project.folder / compose_tool.FILE} is missing.",
            "It says how the cluster is started.",
            ("Write it again: configure-environment",),
        )
    found = find_compose(machine)
    if found is None:
        raise DshpcError(
            "Docker Compose is not installed.",
            "",
            ("Install it: configure-environment does, or says how.",),
        )
    return found


def find_compose(machine: Machine) -> Compose | None:
    """The compose tool of this machine; raises where it does not answer in time."""
    from dshpc_setup.probes.compose import find_compose

    return find_compose(machine, _ASK_S)
