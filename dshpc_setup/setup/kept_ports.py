"""Ports of Slurm's daemons where the container has the machine's own network: chosen once, kept, free."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from dshpc_setup.builtin import launch, ports
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.engine import containers
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings

_NAMES = ("SlurmctldPort", "SlurmdPort")
_ANYWHERE = "0.0.0.0"


def choose(machine: Machine, project: Project, settings: Settings, engine: str) -> str:
    """The text of the setting slurm_ports: two that are this cluster's from its first run on.

    Where it listens for other machines, Slurm's usual ones if they are free.
    """
    before, same = settings.slurm_ports, project.runtime().get("prefix") == settings.prefix
    was = dict(zip(_NAMES, before, strict=True)) if same or settings.listens else None
    cluster = ports.cluster(str(project.folder), settings.prefix)
    lost = _lost(machine, settings.container, (was or {}) if same else {}, engine)
    registry = ports.registry(machine.env)
    if settings.listens:
        free = functools.partial(ports.is_free, address=_ANYWHERE)
        kept = ports.keep(registry, cluster, _NAMES, free, before=was, lost=lost)
    else:
        kept = ports.keep(registry, cluster, _NAMES, before=was, lost=lost)
    return ",".join(str(kept[name]) for name in _NAMES)


def _lost(machine: Machine, name: str, had: Mapping[str, int], engine: str) -> tuple[str, ...]:
    """Of the cluster's ports those on which a program listens that is not its container's."""
    if engine != BUILTIN:
        found = containers.inspect(machine, name)
        if found is not None and found.running:
            return ()
        return tuple(each.name for each in ports.taken(had))
    container = Store(machine.env).find("container", name)
    record = launch.find(container.run).record if container is not None else None
    return tuple(each.name for each in ports.taken(had, record.init if record else None))
