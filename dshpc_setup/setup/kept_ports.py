"""Ports of Slurm's daemons where the container has the machine's own network: chosen once, kept, free."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from dshpc_setup.builtin import launch, ports
from dshpc_setup.builtin.processes import Process
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.engine import containers
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings

_NODE = "SlurmdPort"
# The last one is kept where accounting is off, too: it is switched on while jobs run
_NAMES = ("SlurmctldPort", _NODE, "AccountingStoragePort")
_ANYWHERE = "0.0.0.0"


def choose(machine: Machine, project: Project, settings: Settings, engine: str) -> str:
    """The text of the setting slurm_ports: those that are this cluster's from its first run on; one more
    for slurmdbd, for each further node, and for each number between that no node has.

    Where it listens for other machines, Slurm's usual ones if they are free.
    """
    names = (
        *_NAMES,
        *(f"{_NODE}-{at}" for at in range(2, len(settings.profiles) + 1)),
    )
    before, same = settings.slurm_ports, project.runtime().get("prefix") == settings.prefix
    is_known = settings.listens or (same and len(before) in (2, len(names)))
    was = dict(zip(names, before, strict=False)) if is_known else None
    cluster = ports.cluster(str(project.folder), settings.prefix)
    lost = _lost(machine, settings.container, (was or {}) if same else {}, engine)
    registry = ports.registry(machine.env)
    if settings.listens:
        free = functools.partial(ports.is_free, address=_ANYWHERE)
        kept = ports.keep(registry, cluster, names, free, before=was, lost=lost)
    else:
        kept = ports.keep(registry, cluster, names, before=was, lost=lost)
    return ",".join(str(kept[name]) for name in names)


def _lost(machine: Machine, name: str, had: Mapping[str, int], engine: str) -> tuple[str, ...]:
    """Of the cluster's ports those on which a program listens that is not of the container whose it is."""
    of: dict[str, dict[str, int]] = {}
    for key, port in had.items():
        number = key.partition("-")[2]
        of.setdefault(f"{name}-{number}" if number else name, {})[key] = port
    if engine == BUILTIN:
        inits = {own: _init(machine, own) for own in of}
        return tuple(each.name for own, few in of.items() for each in ports.taken(few, inits[own]))
    return tuple(
        each.name for own, few in of.items() if not _runs(machine, own) for each in ports.taken(few)
    )


def _runs(machine: Machine, name: str) -> bool:
    found = containers.inspect(machine, name)
    return found is not None and found.running


def _init(machine: Machine, name: str) -> Process | None:
    container = Store(machine.env).find("container", name)
    record = launch.find(container.run).record if container is not None else None
    return record.init if record is not None else None
