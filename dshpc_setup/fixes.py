"""What mends a fault: one step of it, as text and as a command that can be pasted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fix:
    """One step; `command` can be pasted; `automatic` where dshpc itself can do it."""

    text: str
    command: str | None = None
    automatic: bool = False
