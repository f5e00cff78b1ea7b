"""What is asked of the engine and of a container early, by those who have loaded nothing else yet."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup.engine_client import DOCKER, PODMAN
from dshpc_setup.machine import CommandResult, Machine

INSIDE_S = 7.0
WORK = "DSHPC_OBSERVED_WORK"  # the same as container/observe.py has
_PODMAN_TAKES = 3.0


def patience(runtime: Mapping[str, Any]) -> float:
    """How many times as long doctor waits for a project's engine, by what its runtime.json says.

    Docker's daemon runs. Podman is started for each question, and looks for its own parts first:
    `podman info`, which takes half a second where nothing else runs, took 8 on a busy machine of two CPUs.
    """
    return _PODMAN_TAKES if runtime.get("engine") == PODMAN else 1.0


def argv(kind: str, name: str) -> list[str]:
    """The words that ask for a container, image or volume, by its name or id."""
    return DOCKER.inspect(kind, name)


@dataclass(frozen=True)
class Early:
    """What the engine has said of a container; whether that one is being asked (see ask_inside)."""

    container: CommandResult | None = None
    asking: bool = False


@dataclass(frozen=True)
class Answer:
    """What a container said of itself, not looked into, and when: halfway, in seconds of the epoch."""

    result: CommandResult
    at: float


def ask_inside(
    machine: Machine, container: str, deadline_s: float = INSIDE_S, work: str | None = None
) -> Answer:
    """`work`: the work folder, to be looked at as well."""
    began = time.time()
    told = ("env", f"{WORK}={work}") if work is not None else ()
    argv = DOCKER.run_in(container, *told, "dshpc-node", "observe")
    result = machine.run(argv, deadline_s=deadline_s)
    return Answer(result, (began + time.time()) / 2)
