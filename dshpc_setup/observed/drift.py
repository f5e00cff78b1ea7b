"""Other GPUs than at the last start, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuDrift:
    """Of one type; `gone` are the cards that are not here any more, as they are called for people."""

    type: str
    before: int
    now: int
    gone: tuple[str, ...] = ()
