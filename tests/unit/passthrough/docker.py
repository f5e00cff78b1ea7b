"""A machine on which only `docker run`, `start` and `rm` are known, by a list of endings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dshpc_setup.machine import CommandResult
from tests.unit.passthrough.made import ended

NOTHING_LEFT = ended(1, "", "Error: No such container: dshpc-passthrough-0a")


class Docker:
    """`endings` one after the other; `calls` holds every command line."""

    def __init__(
        self,
        *endings: CommandResult | BaseException,
        numbers: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        self.endings = list(endings)
        self.calls: list[tuple[str, ...]] = []
        self.deadlines: list[float] = []
        self.numbers = dict(numbers or {})

    def run(self, argv: list[str], *, deadline_s: float, **_: Any) -> CommandResult:
        assert deadline_s > 0
        self.deadlines.append(deadline_s)
        self.calls.append(tuple(argv))
        ending = self.endings.pop(0)
        if isinstance(ending, BaseException):
            raise ending
        return ending

    def device_number(self, path: str) -> tuple[int, int] | None:
        return self.numbers.get(path)

    @property
    def started(self) -> list[tuple[str, ...]]:
        return [call for call in self.calls if call[1] == "run"]


def name_of(call: tuple[str, ...]) -> str:
    """Of the container that a `docker run` starts."""
    return call[call.index("--name") + 1]
