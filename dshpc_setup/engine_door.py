"""The machine on which `docker` is a project's own engine: Docker's client, Podman's or the built-in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshpc_setup.engine_client import BUILTIN, PODMAN
from dshpc_setup.machine import Machine


def of(machine: Machine, runtime: Mapping[str, Any]) -> Machine:
    """The machine, as a project's commands see it, by what its runtime.json says."""
    return through(machine, str(runtime.get("engine")))


def through(machine: Machine, engine: str) -> Machine:
    """The machine, as seen through an engine by its name."""
    if engine == BUILTIN:
        from dshpc_setup.builtin_client import door as builtin

        return builtin.through(machine)
    if engine == PODMAN:
        from dshpc_setup.podman_client import door as podman
        from dshpc_setup.terminal.command_names import advise_podman

        advise_podman()
        return podman.through(machine)
    return machine
