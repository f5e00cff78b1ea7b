"""What is asked of the engine and of a container early, by those who have loaded nothing else yet."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dshpc_setup.engine_client import DOCKER
from dshpc_setup.machine import CommandResult, Machine

INSIDE_S = 7.0


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


def ask_inside(machine: Machine, container: str, deadline_s: float = INSIDE_S) -> Answer:
    began = time.time()
    result = machine.run(DOCKER.run_in(container, "dshpc-node", "observe"), deadline_s=deadline_s)
    return Answer(result, (began + time.time()) / 2)
