"""The one exception type, as data, and the exit codes of every command."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

ERROR_SCHEMA = "dshpc.error/1"


class Exit(IntEnum):
    """Exit codes of all commands; a job's own exit code passes through unchanged."""

    OK = 0
    WARNING = 1
    ERROR = 2
    INCOMPLETE = 3  # something timed out or could not be asked
    USAGE = 64
    INTERRUPTED = 130


@dataclass(eq=True)
class DshpcError(Exception):
    """The run cannot go on.

    `brief` says what happened, `details` why (raw text of the layer below is welcome), `resolution`
    what to do next, one step an item. Two errors with the same content are equal.
    """

    brief: str
    details: str = ""
    resolution: tuple[str, ...] = ()
    exit_code: int = Exit.ERROR

    def __str__(self) -> str:
        return self.brief

    __hash__ = Exception.__hash__

    def to_json(self) -> dict[str, object]:
        return {
            "brief": self.brief,
            "details": self.details,
            "resolution": list(self.resolution),
            "exit_code": int(self.exit_code),
        }

    def to_object(self) -> dict[str, object]:
        """The `dshpc.error/1` object, which stands where a command's answer would."""
        return {
            "schema": ERROR_SCHEMA,
            "exit_code": int(self.exit_code),
            "error": self.to_json(),
        }


@dataclass(frozen=True)
class Refusal:
    """A DshpcError of an earlier run, as it was told then."""

    brief: str
    details: str = ""
    resolution: tuple[str, ...] = ()


def usage_error(brief: str, details: str = "", *resolution: str) -> DshpcError:
    """Wrong input from the user: exit code 64."""
    return DshpcError(brief, details, resolution, Exit.USAGE)
