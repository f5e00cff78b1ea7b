"""A machine that is another one but for how commands are run: longer, shorter, fewer, together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dshpc_setup.machine import CommandResult, Machine


class Changed:
    """`run` takes the place of the machine's own; a Machine to its users (`cast`)."""

    def __init__(self, machine: Machine, run: Callable[..., CommandResult]) -> None:
        self._machine = machine
        self.run = run

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)
