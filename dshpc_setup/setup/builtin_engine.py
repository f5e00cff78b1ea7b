"""A run whose container is started by the built-in engine: its ports, and its image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dshpc_setup.builtin import launch, ports
from dshpc_setup.builtin.processes import Process
from dshpc_setup.builtin_client import containers, images
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

_NAMES = ("SlurmctldPort", "SlurmdPort")
_DATABASE = "AccountingStoragePort"


def kept_ports(machine: Machine, project: Project, settings: Settings) -> str:
    """The text of the setting slurm_ports: those that are this cluster's from its first run on; one more
    for slurmdbd, for each further node, and for each number between that no node has."""
    names = (
        *_NAMES,
        *((_DATABASE,) if settings.accounting == "on" else ()),
        *(f"{_NAMES[1]}-{at}" for at in range(2, len(settings.profiles) + 1)),
    )
    before, same = settings.slurm_ports, project.runtime().get("prefix") == settings.prefix
    was = dict(zip(names, before, strict=True)) if same and len(before) == len(names) else None
    cluster = ports.cluster(str(project.folder), settings.prefix)
    lost = _lost(machine, settings.container, was or {})
    kept = ports.keep(ports.registry(machine.env), cluster, names, before=was, lost=lost)
    return ",".join(str(kept[name]) for name in names)


def _lost(machine: Machine, container: str, had: Mapping[str, int]) -> tuple[str, ...]:
    """Of the cluster's ports those on which a program listens that is not of the container whose it is."""
    of: dict[str, dict[str, int]] = {}
    for name, port in had.items():
        number = name.partition("-")[2]
        of.setdefault(f"{container}-{number}" if number else container, {})[name] = port
    return tuple(
        each.name for own, few in of.items() for each in ports.taken(few, _init(machine, own))
    )


def _init(machine: Machine, name: str) -> Process | None:
    container = Store(machine.env).find("container", name)
    record = launch.find(container.run).record if container is not None else None
    return record.init if record is not None else None


def load_image(machine: Machine, tag: str, file: Path, reporter: Reporter) -> None:
    """The image of a file under that name; DshpcError."""
    reporter.progress(f"image: unpacking {file.name}")
    store = Store(machine.env)
    try:
        with store.changing():
            images.load(machine, store, file, containers.ids_of(machine), tag)
    except DshpcError as error:
        raise replace(error, details=f"{file}: {error.details}".rstrip(": ")) from None
    except TimeoutError as error:
        raise DshpcError(
            "Another run changes the built-in engine's images.",
            str(error),
            ("Wait for it, then run this again.",),
            Exit.INCOMPLETE,
        ) from None
