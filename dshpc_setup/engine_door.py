"""The machine on which `docker` is a project's own engine: Docker's client, Podman's or the built-in one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshpc_setup.engine.privilege import caller
from dshpc_setup.engine_client import BUILTIN, PODMAN
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine


def of(machine: Machine, runtime: Mapping[str, Any]) -> Machine:
    """The machine, as a project's commands see it, by what its runtime.json says."""
    return through(machine, str(runtime.get("engine")), runtime.get("cache"))


def _need_no_sudo(machine: Machine) -> None:
    """Raises DshpcError: root would believe what lies in folders of the one who called sudo."""
    who = caller(machine)
    if who.via_sudo:
        raise DshpcError(
            "The built-in engine is not for sudo.",
            f"It needs no root: the cluster is {who.name}'s own, as are its files.",
            ("Run this again without sudo.",),
        )


def through(machine: Machine, engine: str, cache: str | None = None) -> Machine:
    """The machine, as seen through an engine by its name; `cache`: its place, as the project knows it."""
    if engine == BUILTIN:
        from dshpc_setup.builtin_client import door as builtin
        from dshpc_setup.terminal.command_names import advise_builtin

        advise_builtin()
        _need_no_sudo(machine)
        return builtin.through(machine, cache)
    if engine == PODMAN:
        from dshpc_setup.podman_client import door as podman
        from dshpc_setup.terminal.command_names import advise_podman

        advise_podman()
        return podman.through(machine)
    return machine
