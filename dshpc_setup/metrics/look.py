"""One look at everything that metrics tell: hardware, slurmctld, doctor; each with its deadline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dshpc_setup import checkup
from dshpc_setup.cluster import gpu_nodes, gpus
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.cluster.targets import one_user, ours, target
from dshpc_setup.diagnose import catalogue, diagnose, kernel_log
from dshpc_setup.documents import foreign
from dshpc_setup.engine import containers, start_report
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings

_SCHEMA = "dshpc.node-metrics/1"
_ASK_S = 40.0


@dataclass(frozen=True)
class Doctor:
    """Findings that are wrong, by their state, and the last Xid of each GPU by its PCI address."""

    findings: tuple[tuple[str, str], ...] = ()  # (id, state)
    xids: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # address -> last, how many


@dataclass(frozen=True)
class Seen:
    """`node` is None where the container gave no answer; times are seconds since 1970."""

    gpus: GpusNow
    cluster: str
    up: bool
    at: float
    took_s: float
    node: Mapping[str, Any] | None = None
    drift: int | None = None
    doctor: Doctor | None = None


def look(machine: Machine, project: Project, doctor: Doctor | None) -> Seen:
    """All but doctor's part, which takes longest; never raises for what a cluster is like."""
    began = time.monotonic()
    try:
        settings = project.read_settings(machine.env).settings
    except DshpcError:  # what earlier runs remember is damaged
        settings = Settings()
    now = gpu_nodes.with_others(
        machine, project, lambda: gpus.look(machine, project, settings.simulate)
    )
    now = replace(now, settings=settings)
    node, drift, up = _of_cluster(machine, project)
    name = str(project.runtime().get("prefix") or settings.prefix)
    took_s = time.monotonic() - began
    return Seen(now, name, up, time.time(), took_s, node, drift, doctor)


def _of_cluster(
    machine: Machine, project: Project
) -> tuple[Mapping[str, Any] | None, int | None, bool]:
    try:
        cluster = target(project)
        found = ours(machine, cluster)
        if found is None or found.status != "running":
            return None, None, False
        asked = ask_node(machine, cluster.container)
        report = start_report.ask(machine, cluster.container)
    except DshpcError:
        return None, None, False
    if asked is not None and (name := one_user(machine, found)) is not None:
        asked = {key: _with_user(rows, name) for key, rows in asked.items()}
    drift = report.get("drift")
    up = report.get("ready") is True
    return asked, len(drift) if isinstance(drift, list) else None, up


def _with_user(rows: object, name: str) -> object:
    """The rows that name a user, with that name."""
    if not isinstance(rows, list):
        return rows
    return [
        {**row, "user": name} if isinstance(row, dict) and "user" in row else row for row in rows
    ]


def ask_node(machine: Machine, container: str) -> Mapping[str, Any] | None:
    """What slurmctld in that container says; None where it says nothing that can be read."""
    asked = containers.exec_in(
        machine, container, ["dshpc-node", "metrics"], deadline_s=_ASK_S, user="0"
    )
    try:
        told = foreign.value(asked.stdout) if asked.ok else None
    except ValueError:
        return None
    return told if isinstance(told, dict) and told.get("schema") == _SCHEMA else None


def examine(machine: Machine, project: Project) -> Doctor:
    """What doctor finds; never raises for what a machine or a cluster is like."""
    known = checkup.examine(machine, project)
    wrong = (
        each for each in diagnose(known, catalogue()) if each.state in ("warn", "error", "info")
    )
    last: dict[str, tuple[int, int]] = {}
    for xid in kernel_log.xids(known.observed.kernel):
        last[xid.address] = (xid.number, last.get(xid.address, (0, 0))[1] + 1)
    return Doctor(tuple((each.id, each.state) for each in wrong), last)
