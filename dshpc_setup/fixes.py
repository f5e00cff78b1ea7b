"""What mends a fault: one step of it, as text and as a command that can be pasted."""

from __future__ import annotations

import re
from dataclasses import dataclass

_COMMAND = re.compile(
    r"(?:sudo |docker |dshpc |dshpc-node |configure-environment|mv |rm |ls |cp |chmod |chown ).*(?<!\.\.\.)"
)


@dataclass(frozen=True)
class Fix:
    """One step; `command` can be pasted; `automatic` where dshpc itself can do it."""

    text: str
    command: str | None = None
    automatic: bool = False


def of_step(step: str) -> Fix:
    """A step of an error: what stands behind "Words: " is the command, where it can be pasted.

    One that lacks a part of its own, and so ends in "...", is words.
    """
    begin = -1
    while (begin := step.find(": ", begin + 1)) != -1:
        command = step[begin + 2 :]
        if _COMMAND.fullmatch(command):
            return Fix(step[:begin], command)
    return Fix(step)
