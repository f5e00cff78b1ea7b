"""What mends a fault: one step of it, as text and as a command that can be pasted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_COMMAND = re.compile(
    r"(?:sudo |docker |dshpc |dshpc-node |configure-environment|mv |rm |ls |cp |chmod |chown ).*(?<!\.\.\.)"
)


# Something to do; only to look; another way to the same end, which begins here; to do after the step before
Step = Literal["do", "look", "alternative", "after"]


@dataclass(frozen=True)
class Fix:
    """One step; `command` can be pasted; `automatic` where dshpc itself can do it."""

    text: str
    command: str | None = None
    automatic: bool = False
    step: Step = "do"


# How a step of an error begins that is none to do by itself
_BEGINS: tuple[tuple[str, Step], ...] = (
    ("Or ", "alternative"),
    ("Or,", "alternative"),
    ("See ", "look"),
    ("Look at ", "look"),
    ("Then ", "after"),
)


def of_step(step: str) -> Fix:
    """A step of an error: what stands behind "Words: " is the command, where it can be pasted.

    One that lacks a part of its own, and so ends in "...", is words.
    """
    kind: Step = next((kind for word, kind in _BEGINS if step.startswith(word)), "do")
    begin = -1
    while (begin := step.find(": ", begin + 1)) != -1:
        command = step[begin + 2 :]
        if _COMMAND.fullmatch(command):
            return Fix(step[:begin], command, step=kind)
    return Fix(step, step=kind)


def describe_fix(fix: Fix) -> str:
    """ "Restart Docker: sudo systemctl restart docker"."""
    return f"{fix.text}: {fix.command}" if fix.command else fix.text
