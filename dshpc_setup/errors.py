"""The one exception type, as data, and the exit codes of every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal, get_args

ERROR_SCHEMA = "dshpc.error/1"


class Exit(IntEnum):
    """Exit codes of all commands; a job's own exit code passes through unchanged."""

    OK = 0
    WARNING = 1
    ERROR = 2
    INCOMPLETE = 3  # something timed out or could not be asked
    USAGE = 64
    INTERRUPTED = 130


# Something to do; only to look; another way to the same end, which begins here; to do after the step before
Step = Literal["do", "look", "alternative", "after"]
Place = Literal["project", "host"]
RepairKind = Literal[
    "load-uvm",
    "start-engine",
    "register-runtime",
    "enable-cdi",
    "write-cdi",
    "restart-engine",
    "restrict-env",
    "start-cluster",
    "restrict-key",
    "start-daemon",
    "restart-cluster",
    "resume-node",
    "reconfigure",
    "render",
]
# What a step comes to, where others depend on it
Does = Literal["restart", "put-into-effect"]
Want = tuple[RepairKind, str]
"""A kind of repair, and what it is about: the vendor, the daemon, or ""."""
_PLACES: dict[Place, str] = {"project": "in the project folder", "host": "on the host"}


@dataclass(frozen=True)
class Fix:
    """One step of what fixes a fault; `command` can be pasted; `automatic` where dshpc itself can do it.

    `place`: where it is done, where that is not wherever it is read. `repair`: the repair of
    `dshpc doctor --fix` that does this step. `does`: what the step comes to, where other steps depend on it.
    """

    text: str
    command: str | None = None
    automatic: bool = False
    step: Step = "do"
    place: Place | None = None
    repair: Want | None = None
    does: Does | None = None

    def __str__(self) -> str:
        """ "Restart Docker: sudo systemctl restart docker"."""
        return f"{self.words}: {self.command}" if self.command else self.words

    @property
    def words(self) -> str:
        """The text with its place."""
        return f"{self.text}, {_PLACES[self.place]}" if self.place else self.text

    def to_json(self) -> dict[str, object]:
        told: dict[str, object] = {
            "text": self.text,
            "command": self.command,
            "step": self.step,
            "place": self.place,
        }
        return told if self.does is None else {**told, "does": self.does}

    def edited(self, edit: Callable[[str], str]) -> Fix:
        """The step with its text and command changed: a name filled in, say."""
        return replace(self, text=edit(self.text), command=self.command and edit(self.command))


def configure(text: str, *, step: Step = "do") -> Fix:
    """The step that is a run of configure-environment, which the repair "render" stands for."""
    automatic = step != "after"  # something else is to be done before
    return Fix(text, "configure-environment", automatic, step, repair=("render", ""))


@dataclass(eq=True)
class DshpcError(Exception):
    """The run cannot go on.

    `brief` says what happened, `details` why (raw text of the layer below is welcome), `steps` what to
    do next: a Fix where there is a command to type, or a sentence. `file`: the file of the project folder
    that cannot be used as it is ("config/slurm.conf"). `absent`: what was named (a job, a method) is not
    there. Two errors with the same content are equal.
    """

    brief: str
    details: str = ""
    steps: tuple[str | Fix, ...] = ()
    exit_code: int = Exit.ERROR
    file: str | None = None
    absent: bool = False

    @property
    def resolution(self) -> tuple[str, ...]:
        """The steps in words."""
        return tuple(map(str, self.steps))

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The steps as values."""
        return tuple(step if isinstance(step, Fix) else Fix(step) for step in self.steps)

    def __str__(self) -> str:
        return self.brief

    __hash__ = Exception.__hash__

    def to_json(self) -> dict[str, object]:
        told: dict[str, object] = {
            "brief": self.brief,
            "details": self.details,
            "resolution": list(self.resolution),
            "exit_code": int(self.exit_code),
        }
        return {**told, "absent": True} if self.absent else told

    def to_object(self) -> dict[str, object]:
        """The `dshpc.error/1` object, which stands where a command's answer would."""
        return {
            "schema": ERROR_SCHEMA,
            "exit_code": int(self.exit_code),
            "error": self.to_json(),
        }


def words_of(error: BaseException) -> str:
    """What it says. Of one that is none of these its class comes first: it is often all that it says."""
    if isinstance(error, DshpcError):
        return " ".join(filter(None, (error.brief, error.details)))
    return f"{type(error).__name__}: {error}"


def told_error(value: Mapping[str, object]) -> DshpcError:
    """The error that a container told: {brief, details, fixes, file, absent}.

    What is missing is empty. An older image tells its steps as sentences alone (`resolution`).
    """
    told = value.get("fixes")
    items = told if isinstance(told, list) else []
    fixes = [_told_fix(item) for item in items if isinstance(item, dict)]
    words = value.get("resolution")
    said = [str(word) for word in words] if isinstance(words, list) else []
    brief, details = str(value.get("brief") or ""), str(value.get("details") or "")
    file = value.get("file")
    return DshpcError(
        brief,
        details,
        tuple(fixes or said),
        file=file if isinstance(file, str) else None,
        absent=value.get("absent") is True,
    )


def _told_fix(item: Mapping[str, object]) -> Fix:
    command = item.get("command")
    step: Step = next((each for each in get_args(Step) if each == item.get("step")), "do")
    place: Place | None = next((each for each in _PLACES if each == item.get("place")), None)
    text = str(item.get("text") or "")
    does: Does | None = next((each for each in get_args(Does) if each == item.get("does")), None)
    return Fix(text, None if command is None else str(command), step=step, place=place, does=does)


def usage_error(brief: str, details: str = "", *steps: str | Fix) -> DshpcError:
    """Wrong input from the user: exit code 64."""
    return DshpcError(brief, details, steps, Exit.USAGE)
