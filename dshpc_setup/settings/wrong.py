"""What is wrong with settings, as values: which one, where it stands, why, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from dshpc_setup.errors import DshpcError, Exit

Origin = Literal["flag", "environment", "remembered", "file", "default"]
Kind = Literal["value", "name", "twice", "file"]

OWN_FILE = "dshpc.yaml"


@dataclass(frozen=True)
class Source:
    """Where a setting came from; `items`: where each item of a list stands, if in lines of their own."""

    origin: Origin
    where: str  # "--prefix", "DSHPC_PREFIX", "dshpc.yaml:3:1"
    items: tuple[str, ...] = ()

    def of_item(self, index: int) -> Source:
        """The same, and where that item stands."""
        return replace(self, where=self.items[index]) if index < len(self.items) else self


@dataclass(frozen=True)
class WrongSetting:
    """One that cannot be used. `setting` is its name as it stands there; None: the file as a whole.

    `kind`: its value is wrong, there is no such name, it stands there twice, or the file cannot be read
    further.
    """

    kind: Kind
    origin: Origin
    where: str
    brief: str  # with the place in front
    details: str = ""
    setting: str | None = None
    choices: str = ""  # what there is instead: told once of several mistakes
    steps: tuple[str, ...] = ()  # what to do, where the value's own reader knows

    @property
    def in_own_file(self) -> bool:
        """Whether it stands in the dshpc.yaml of the project folder."""
        return self.origin == "file" and _is_own(self.where)

    @property
    def place(self) -> tuple[int, int]:
        """Line and column; zeros where it stands in no file."""
        found = re.search(r":([0-9]+):([0-9]+)$", self.where) if self.origin == "file" else None
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def lines(self) -> tuple[str, ...]:
        """What is wrong, and why."""
        return (self.brief, *(line for line in self.details.splitlines() if line))

    @property
    def remedy(self) -> str:
        """What to do about it alone, with its command."""
        if self.steps:
            return self.steps[0]
        if self.origin == "environment":
            return f"Correct that variable, or take it out: unset {self.where}"
        if self.origin == "remembered":
            return f"Forget it: dshpc config unset {self.setting}"
        if not self.in_own_file or self.setting is None or self.kind == "file":
            return f"Correct {self.where} and run again."
        if self.kind == "name":
            return (
                f"Correct the name in {self.where}, or take the line out: "
                f"dshpc config unset {self.setting}"
            )
        if self.kind == "twice":
            return f"Take one of them out. To take out both: dshpc config unset {self.setting}"
        return (
            f"Correct it: dshpc config set {self.setting} VALUE. To take it out: "
            f"dshpc config unset {self.setting}"
        )


def _is_own(where: str) -> bool:
    return where == OWN_FILE or where.startswith(f"{OWN_FILE}:")


@dataclass(eq=True)
class SettingsError(DshpcError):
    """Settings that cannot be used; `problems` are all of them."""

    problems: tuple[WrongSetting, ...] = ()

    __hash__ = DshpcError.__hash__


def together(wrong: Iterable[WrongSetting]) -> SettingsError:
    """One error of all: each with its place, in the order of the file, those of no file first."""
    problems = tuple(sorted(wrong, key=lambda each: each.place))
    if len(problems) == 1:
        (only,) = problems
        details = "\n".join(filter(None, (only.details, only.choices)))
        steps = only.steps or (only.remedy,)
        return SettingsError(only.brief, details, steps, Exit.USAGE, problems=problems)
    lines: list[str] = []
    for each in problems:
        hint = [f"  {line}" for line in (each.details or each.choices).splitlines()]
        lines += [each.brief, *(line for line in hint if line not in lines)]
    brief = f"{len(problems)} settings are wrong."
    steps = _steps(problems)
    return SettingsError(brief, "\n".join(lines), steps, Exit.USAGE, problems=problems)


def _steps(problems: tuple[WrongSetting, ...]) -> tuple[str, ...]:
    if not any(each.in_own_file and each.setting for each in problems):
        return ("Correct them all and run again.",)
    return (
        "Correct them all and run again.",
        f"For one of {OWN_FILE}: dshpc config set NAME VALUE. To take it out: dshpc config unset NAME",
    )
