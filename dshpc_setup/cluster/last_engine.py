"""Which engine the cluster of a folder was started on: another one has none of its homes, queue and key."""

from __future__ import annotations

from dshpc_setup.cluster.compose_file import USED
from dshpc_setup.engine.containers import volume_labels
from dshpc_setup.engine_client import PODMAN
from dshpc_setup.facts import Engine
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.render.volumes import VOLUMES

NOTE = f"{OWN}/engine.json"


def remember(project: Project, engine: Engine, prefix: str) -> None:
    """After a start; the names are those by which people find it again."""
    told = {
        "id": engine.engine_id,
        "host": engine.host,
        "context": engine.context,
        "prefix": prefix,
    }
    if project.read_note(NOTE) != told:
        project.write_json(NOTE, told)


def forget(project: Project) -> None:
    """After its volumes were removed: nothing stays anywhere."""
    project.write_json(NOTE, {"removed": True})


def left_behind(machine: Machine, project: Project, engine: Engine, prefix: str) -> str | None:
    """Before a start: the sentence on what stays on the engine of the last start; None where that is this
    one, or there was none. Raises DshpcError where the engine does not say which volumes it has.
    """
    told = project.read_note(NOTE)
    if told.get("removed") or not project.read_note(USED):
        return None  # it was never started, or is gone with all that it had
    if told:
        same = "id" if told.get("id") and engine.engine_id else "host"
        if told.get(same) == (engine.engine_id if same == "id" else engine.host):
            return None
        before = str(told.get("prefix") or prefix)
        names = ", ".join(f"{before}-{part}" for part in VOLUMES)
        return (
            f"This is another engine than the one of the last start ({_where(told)}). Users' homes, the job "
            f"queue and the key stay there, in the volumes {names}: nothing of them is carried over. What is "
            f"in the homes: {_look(told, before)}"
        )
    home = f"{prefix}-home"
    if volume_labels(machine, home) is not None:
        return None
    return (
        f"This engine has no volume {home}. Where the cluster was started on another engine before, users' "
        "homes, the job queue and the key are there, and are not carried over; which engine that was is not "
        "known."
    )


def _where(told: dict[str, object]) -> str:
    context, host = told.get("context"), told.get("host") or "unknown address"
    return f"{host}, docker context {context}" if context else str(host)


def _look(told: dict[str, object], prefix: str) -> str:
    host = told.get("host")
    there = f"docker -H {host}" if host and host != PODMAN else str(host or "docker")
    return f"{there} run --rm -v {prefix}-home:/homes:ro debian:trixie-slim ls -l /homes"
