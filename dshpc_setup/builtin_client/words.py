"""Options of a command line as Docker's client has them: those that are known, and nothing guessed."""

from __future__ import annotations

import sys

from dshpc_setup.builtin_client.failing import usage

TYPE_CHECKING = False  # each `dshpc srun` takes this
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    Takes = Literal["nothing", "value"]


class Options:
    """What stood before the first word that is no option; `words` is the rest."""

    def __init__(self, argv: Sequence[str], known: Mapping[str, Takes]) -> None:
        """`known`: each spelling (`--name`, `-e`) and whether a value follows; ClientError for another."""
        self._found: list[tuple[str, str]] = []
        rest = list(argv)
        while rest and rest[0].startswith("-") and rest[0] != "-":
            word = rest.pop(0)
            if word == "--":
                break
            name, equals, value = word.partition("=")
            takes = known.get(name)
            if takes is None or (takes == "nothing" and equals):
                raise usage(f"unknown flag: {word}")
            if takes == "value" and not equals:
                if not rest:
                    raise usage(f"flag needs an argument: {word}")
                value = rest.pop(0)
            self._found.append((name, value))
        self.words = rest

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self._found)

    def value(self, *names: str) -> str | None:
        return next((value for name, value in reversed(self._found) if name in names), None)

    def values(self, *names: str) -> list[str]:
        return [value for name, value in self._found if name in names]


def put(text: str) -> None:
    """A line of the answer."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
