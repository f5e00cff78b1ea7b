"""Processes that serve while the cluster runs, metrics and the dashboard: of the cluster's owner, started by
`up`, ended by `down`.

A service of systemd's where one outlives the session, as the built-in engine's supervisor is.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import dshpc_setup
from dshpc_setup.builtin import processes
from dshpc_setup.cluster import own_process
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

_SUPERVISED = (
    "This dshpc lies in a cache that is emptied now and then, and the cluster is kept running from there: "
    "once it is gone (uv cache clean), a cluster that ends by itself is not started again. Install it for "
    "good: uv tool install 'dshpc-setup[dashboard]'. Then, with that one: dshpc restart"
)


@dataclass(frozen=True)
class Service:
    """What `dshpc NAME --serve` serves, at the address that the setting of that name has."""

    name: str
    about: str  # "Metrics are": begins a sentence

    @property
    def note(self) -> str:
        """The process that runs, and where it listens."""
        return f"{OWN}/{self.name}.json"

    @property
    def folder(self) -> str:
        return f"{OWN}/{self.name}"


METRICS = Service("metrics", "Metrics are")
DASHBOARD = Service("dashboard", "The dashboard is")
SERVICES = (METRICS, DASHBOARD)


def follow(
    machine: Machine, project: Project, reporter: Reporter, settings: Settings | None = None
) -> None:
    """Have each serve as its setting says; what keeps it from that is a note: the cluster runs without."""
    if project.foreign is not None:
        return
    if project.runtime().get("engine") == BUILTIN and own_process.lies_in_cache(Path(sys.prefix)):
        reporter.note(_SUPERVISED)
    if settings is None and (settings := _settings(machine, project)) is None:
        return
    for service in SERVICES:
        _follow(machine, project, reporter, service, getattr(settings, service.name))


def _follow(
    machine: Machine, project: Project, reporter: Reporter, service: Service, wanted: str
) -> None:
    of_us = project.read_note(service.note).get("version") == dshpc_setup.__version__
    if of_us and address(project, service) == wanted:
        return
    _stop(project, service)
    if wanted == "off":
        return
    reporter.progress(f"{service.name}: starting to serve at {wanted}")
    try:
        _start(machine, project, service, wanted)
    except (DshpcError, OSError) as error:
        told = f"{error.brief} {error.details}" if isinstance(error, DshpcError) else str(error)
        reporter.note(f"{service.about} not served at {wanted}: {told.strip()}")


def _settings(machine: Machine, project: Project) -> Settings | None:
    """None where settings are wrong, of which others tell: what serves goes on as it does."""
    try:
        read = project.read_settings(machine.env)
    except DshpcError:
        return None
    return None if read.wrong else read.settings


def address(project: Project, service: Service) -> str | None:
    """Where it serves now; None where its process does not run."""
    note = project.read_note(service.note)
    running, where = own_process.of_note(note), note.get("address")
    if running is None or not isinstance(where, str) or not processes.runs(running):
        return None
    return where


def stop(project: Project) -> None:
    """End them all."""
    for service in SERVICES:
        _stop(project, service)


def _stop(project: Project, service: Service) -> None:
    running = own_process.of_note(project.read_note(service.note))
    if running is None:
        return
    own_process.end(running)
    project.drop_json(service.note)


def _where(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _need_free(where: tuple[str, int]) -> None:
    """Raises DshpcError where it cannot be listened at: else who listens there is taken for ours."""
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(where)
            tried.listen()
        except OSError as error:
            raise DshpcError(
                f"{where[0]}:{where[1]} cannot be listened at.",
                f"{os.strerror(error.errno or 0)}. See who listens: ss -ltnp 'sport = :{where[1]}'",
            ) from None


def _start(machine: Machine, project: Project, service: Service, wanted: str) -> None:
    if own_process.lies_in_cache(Path(sys.prefix)):
        raise DshpcError(
            "This dshpc lies in a cache that is emptied now and then, and what serves has to last.",
            "Install it for good: uv tool install 'dshpc-setup[dashboard]'. Then: dshpc up",
        )
    _need_free(_where(wanted))
    folder = project.folder / service.folder
    words = [service.name, "--serve", "--dir", str(project.folder)]
    process = own_process.start(machine, folder, words, f"dsHPC setup: {service.name}")
    if process is None or not own_process.listens(process, _where(wanted)):
        said = own_process.said(folder)
        raise DshpcError("Its process has ended.", said or "it gave no reason.")
    note = own_process.to_note(process, address=wanted, version=dshpc_setup.__version__)
    project.write_json(service.note, note)
