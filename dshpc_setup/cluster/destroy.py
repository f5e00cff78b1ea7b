"""`dshpc destroy`: remove this folder's cluster and nothing else; say what is left, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dshpc_setup.cluster.operations import Target, find_compose, ours, target
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project import Project
from dshpc_setup.reporter import Reporter
from dshpc_setup.stanza import PROJECT_LABEL

BUILD_LABEL = "org.dshpc.build"
_COMPOSE_LABEL = "com.docker.compose.project"
_VOLUMES = ("state", "key")


@dataclass
class Destroyed:
    """Names of what was removed; sentences about what could not be, and about what is not ours."""

    removed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def attempt(self, remove: Callable[[Machine, str], bool], machine: Machine, name: str) -> None:
        """Keep what became of it; `remove` says whether it was there."""
        try:
            if remove(machine, name):
                self.removed.append(name)
        except DshpcError as error:
            self.left.append(f"{error.brief}: {' '.join(error.details.split())}")


def destroy(
    machine: Machine, project: Project, reporter: Reporter, *, image: bool = False
) -> Destroyed:
    """Remove container, network and volumes, and with `image` the images built for this cluster.

    Asks first. Files stay: config/, docker-compose.yml, the work folder and all that is in it.
    """
    cluster = target(project)
    with project.lock():
        there = ours(machine, cluster) is not None
        _ask(cluster, reporter, image)
        gone = Destroyed()
        if there:
            reporter.progress(f"removing {cluster.container}")
            _compose_down(machine, cluster, gone)
            gone.attempt(_remove_container, machine, cluster.container)
        for name in containers.networks(machine, f"{_COMPOSE_LABEL}={cluster.prefix}"):
            gone.attempt(containers.remove_network, machine, name)
        reporter.progress("removing the volumes")
        for name in (f"{cluster.prefix}-{part}" for part in _VOLUMES):
            _remove_volume(machine, cluster, name, there, gone)
        if image:
            reporter.progress("removing the images")
            for name in _images(machine, cluster):
                gone.attempt(containers.remove_image, machine, name)
        gone.notes += _others(machine, cluster)
        return gone


def _ask(cluster: Target, reporter: Reporter, image: bool) -> None:
    also = " and its image" if image else ""
    question = (
        f"Remove the cluster {cluster.prefix}{also}, with its job queue, users and key? "
        f"Your files in {cluster.work} stay."
    )
    if not reporter.ask(question):
        raise DshpcError(
            "Nothing was removed.",
            "The question was not answered with yes (without a terminal that takes --yes).",
            ("dshpc destroy --yes",),
        )


def _compose_down(machine: Machine, cluster: Target, gone: Destroyed) -> None:
    """Also what a compose file of the user's own has added: networks, other services."""
    compose = find_compose(machine) if cluster.has_compose_file else None
    if compose is None:
        return
    try:
        compose_tool.down(machine, compose, cluster.project.folder, cluster.prefix)
    except DshpcError as error:
        gone.left.append(f"{error.brief}: {' '.join(error.details.split())}")


def _remove_container(machine: Machine, name: str) -> bool:
    containers.remove(machine, name)  # compose may have removed it already
    return True


def _remove_volume(
    machine: Machine, cluster: Target, name: str, in_use: bool, gone: Destroyed
) -> None:
    """By its name where our container uses it: one that was taken over carries another's label."""
    labels = containers.volume_labels(machine, name)
    if labels is None:
        return
    owner = labels.get(PROJECT_LABEL)
    mine = (str(cluster.project.folder), cluster.project.runtime().get("volumes_of"))
    if not in_use and (owner is None or owner not in mine):
        whose = f"belongs to {owner}" if owner else "does not say whose it is"
        gone.left.append(
            f"The volume {name} is kept: no container of this folder uses it, and it {whose}. "
            f"To remove it: docker volume rm {name}"
        )
        return
    gone.attempt(containers.remove_volume, machine, name)


def _images(machine: Machine, cluster: Target) -> tuple[str, ...]:
    found = containers.images(machine, BUILD_LABEL)
    return tuple(name for name in found if name.startswith(f"{cluster.container}:"))


def _others(machine: Machine, cluster: Target) -> list[str]:
    """One sentence for each other cluster that was set up in this folder under another prefix."""
    boxes = containers.containers(machine, cluster.label)
    volumes = containers.volumes(machine, cluster.label)
    prefixes = {name.removesuffix("-slurm") for name in boxes}
    prefixes |= {name.rpartition("-")[0] for name in volumes}
    said = []
    for prefix in sorted(prefixes - {cluster.prefix}):
        box = f"{prefix}-slurm"
        if box not in boxes and containers.inspect(machine, box) is not None:
            continue  # another folder has taken it over, volumes and all
        removing = [f"docker rm -f {box}"] if box in boxes else []
        for network in containers.networks(machine, f"{_COMPOSE_LABEL}={prefix}"):
            removing.append(f"docker network rm {network}")
        names = [name for name in volumes if name.rpartition("-")[0] == prefix]
        if names:
            removing.append(f"docker volume rm {' '.join(names)}")
        said.append(
            f"The cluster {prefix}, set up in this folder as well, is left as it is. "
            f"To remove it: {'; '.join(removing)}"
        )
    return said
