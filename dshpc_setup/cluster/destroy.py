"""`dshpc destroy`: remove this folder's cluster and nothing else; say what is left, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dshpc_setup.builtin import ports
from dshpc_setup.cluster import last_engine, neighbours, serving, stopping, workers
from dshpc_setup.cluster.targets import COMPOSE_LABEL, Target, find_compose, ours, target
from dshpc_setup.engine import compose as compose_tool
from dshpc_setup.engine import containers
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.render.labels import PROJECT_LABEL
from dshpc_setup.render.volumes import VOLUMES
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import plain

BUILD_LABEL = "org.dshpc.build"


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
    machine: Machine,
    project: Project,
    reporter: Reporter,
    *,
    image: bool = False,
    prefix: str | None = None,
    stop_jobs: bool = False,
) -> Destroyed:
    """Remove container, network and volumes, and with `image` the images built for this cluster.

    Asks first; where jobs run, `--yes` answers that with `stop_jobs` alone. Files stay: config/,
    docker-compose.yml, the work folder and all that is in it. `prefix`: not the folder's cluster, but
    another one that was set up in it.
    """
    cluster = target(project)
    if prefix is not None and prefix != cluster.prefix:
        cluster = cluster.named(prefix)
    with project.lock():
        there = ours(machine, cluster)
        _ask(machine, cluster, there, reporter, image, stop_jobs)
        if not cluster.former:
            serving.stop(project)
        gone = removed(machine, cluster, reporter, image=image)
        if not cluster.former and f"{cluster.prefix}-home" in gone.removed:
            last_engine.forget(project)
        if project.runtime().get("engine") == BUILTIN:
            kept = ports.cluster(str(project.folder), cluster.prefix)
            ports.forget(ports.registry(machine.env), kept)
        gone.notes += _others(machine, target(project))
        return gone


def removed(
    machine: Machine, cluster: Target, reporter: Reporter, *, image: bool = False
) -> Destroyed:
    """The same without a question; the folder's lock is held."""
    gone = Destroyed()
    there = ours(machine, cluster) is not None
    if there:
        reporter.progress(f"removing {cluster.container}")
        _compose_down(machine, cluster, gone)
        gone.attempt(_remove_container, machine, cluster.container)
    for each in workers.found(machine, str(cluster.project.folder), cluster.container).values():
        gone.attempt(_remove_container, machine, each.name)
    for name in containers.networks(machine, f"{COMPOSE_LABEL}={cluster.prefix}"):
        gone.attempt(containers.remove_network, machine, name)
    reporter.progress("removing the volumes")
    for name in (f"{cluster.prefix}-{part}" for part in VOLUMES):
        _remove_volume(machine, cluster, name, there, gone)
    if image:
        reporter.progress("removing the images")
        for name in _images(machine, cluster):
            gone.attempt(containers.remove_image, machine, name)
        if not containers.images(machine, BUILD_LABEL):
            gone.attempt(_remove_layers, machine, "")
    return gone


def _ask(
    machine: Machine,
    cluster: Target,
    there: containers.Container | None,
    reporter: Reporter,
    image: bool,
    stop_jobs: bool,
) -> None:
    also = " and its image" if image else ""
    jobs = stopping.for_good(machine, there)
    seen = cluster.project.runtime()
    lent = () if cluster.former else (*seen.get("homes", ()), *seen.get("mounts", ()))
    homes = "the homes that it keeps" if seen.get("homes") else "their homes"
    question = (
        f"Remove the cluster {cluster.prefix}{also}, with its job queue, users, {homes} (what jobs left "
        f"in $HOME) and key? Your files in {' and '.join(map(plain, (cluster.work, *lent)))} stay.{jobs}"
    )
    if not reporter.ask(question, by_yes=stop_jobs or not jobs):
        flags = f"--yes {stopping.FLAG}" if jobs else "--yes"
        raise DshpcError(
            "Nothing was removed.",
            f"{question}\nThat was not answered with yes (without a terminal it takes {flags}).",
            (
                *(["Wait until the jobs have ended: dshpc squeue"] if jobs else []),
                "Copy what you need out of a home: dshpc exec -- cp -r ~/results .",
                f"Then: dshpc destroy {flags}",
            ),
        )


def _compose_down(machine: Machine, cluster: Target, gone: Destroyed) -> None:
    """Also what a compose file of the user's own has added: networks, other services."""
    try:
        compose = find_compose(machine) if cluster.has_compose_file else None
        if compose is None:
            return
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


def _remove_layers(machine: Machine, _: str) -> bool:
    from dshpc_setup.image import builtin_layers

    builtin_layers.forget(machine)
    return False  # of no name that somebody would know


def _others(machine: Machine, cluster: Target) -> list[str]:
    """One sentence for each other cluster that was set up in this folder under another prefix."""
    return [
        f"The cluster {prefix}, set up in this folder as well, is left as it is. To remove it with all "
        f"that is its own: dshpc destroy --prefix {prefix}"
        for prefix in neighbours.of_folder(machine, str(cluster.project.folder), cluster.prefix)
    ]
