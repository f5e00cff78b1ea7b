"""A run whose container is started by the built-in engine: its ports, and its image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dshpc_setup.builtin import launch, ports
from dshpc_setup.builtin_client import containers, images
from dshpc_setup.builtin_client.store import Store
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

_NAMES = ("SlurmctldPort", "SlurmdPort")


def kept_ports(machine: Machine, project: Project, settings: Settings) -> str:
    """The text of the setting slurm_ports: two that are this cluster's from its first run on."""
    before, same = settings.slurm_ports, project.runtime().get("prefix") == settings.prefix
    was = dict(zip(_NAMES, before, strict=True)) if same else None
    cluster = ports.cluster(str(project.folder), settings.prefix)
    lost = _lost(machine, settings.container, was or {})
    kept = ports.keep(ports.registry(machine.env), cluster, _NAMES, before=was, lost=lost)
    return ",".join(str(kept[name]) for name in _NAMES)


def _lost(machine: Machine, name: str, had: Mapping[str, int]) -> tuple[str, ...]:
    """Of the cluster's ports those on which a program listens that is not its container's."""
    container = Store(machine.env).find("container", name)
    record = launch.find(container.run).record if container is not None else None
    return tuple(each.name for each in ports.taken(had, record.init if record else None))


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
