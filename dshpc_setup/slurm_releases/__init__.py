"""What differs between Slurm's releases: one table each, and no code that asks which one it is.

Who reads a text of Slurm's takes what any known release says (`phrase`); who needs a number or an option
takes the table of the release at hand (`of`, `SHIPPED`). A new release is a module of its own here, a line
in RELEASES and recorded answers under tests/unit/slurm/answers.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import Literal

from dshpc_setup.slurm_releases import v24_11, v26_05
from dshpc_setup.slurm_releases.model import HeldBy, NodeReasons, Phrases, Release, Waits

RELEASES = (v24_11.RELEASE, v26_05.RELEASE)  # the oldest first
SHIPPED = v24_11.RELEASE  # of the image, whose packages are those of Debian 13


def of(version: str | None) -> Release:
    """The table of "24.11.5": that of the newest known release which is not newer, else the oldest."""
    wanted = _release(version)
    if wanted is None:
        return SHIPPED
    return next((each for each in reversed(RELEASES) if each.version <= wanted), RELEASES[0])


def _release(version: str | None) -> tuple[int, int] | None:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", version or "")
    return (int(found[1]), int(found[2])) if found else None


def unfit(controller: str, node: str) -> Literal["newer", "older"] | None:
    """Why a slurmctld takes no slurmd of that version, "26.05.5"; None where it does."""
    ours, theirs = _release(controller), _release(node)
    if ours is None or theirs is None:
        return None
    if theirs > ours:
        return "newer"
    return "older" if theirs < of(controller).oldest_node else None


class Phrase:
    """One thing that Slurm says, in the words of each release."""

    def __init__(self, *patterns: str) -> None:
        self._patterns = tuple(map(re.compile, dict.fromkeys(patterns)))

    def search(self, text: str) -> re.Match[str] | None:
        return next(filter(None, (each.search(text) for each in self._patterns)), None)

    def match(self, text: str) -> re.Match[str] | None:
        """At the beginning of the text, in whatever case."""
        return next(filter(None, (each.match(text) for each in self._patterns)), None)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return next(filter(None, (each.fullmatch(text) for each in self._patterns)), None)


@cache
def says(name: str) -> Phrase:
    """Of a field of `Phrases`."""
    assert name in Phrases._fields
    return Phrase(*(getattr(each.says, name) for each in RELEASES))


@cache
def node_reason(*names: str) -> Phrase:
    """Of fields of `NodeReasons`, in whatever case: any of them."""
    assert set(names) <= set(NodeReasons._fields)
    every = chain.from_iterable((getattr(each.node, name) for name in names) for each in RELEASES)
    return Phrase(*(f"(?i){pattern}" for pattern in every))


def held_by(reason: str) -> HeldBy | None:
    """What holds a job that waits for this reason; squeue has it with blanks or with underscores."""
    plain = reason.replace("_", " ")
    return next((each.jobs.held[plain] for each in RELEASES if plain in each.jobs.held), None)


@cache
def passing_reason() -> Phrase:
    """Of a job that waits for what ends by itself, or by what other jobs do."""
    return Phrase(*(each.jobs.passes for each in RELEASES))


def unlooked(reason: str) -> bool:
    """Whether a job waits for this reason because the scheduler has not tried it yet."""
    return waits_for(reason) in ("first_look", "turn")


def waits_for(reason: str) -> Waits | None:
    """By the first word of a reason ("ReqNodeNotAvail, UnavailableNodes:lab"); None for another one."""
    word = reason.partition(",")[0]
    return next((each.jobs.waits[word] for each in RELEASES if word in each.jobs.waits), None)


def no_rival(reason: str) -> bool:
    """Whether a job that waits for this reason takes nothing that is free now."""
    return held_by(reason) is not None or any(reason in each.jobs.no_rival for each in RELEASES)


def unlimited_minutes() -> frozenset[int]:
    """Limits that Slurm itself gives a job without one."""
    return frozenset(each.defaults.unlimited_minutes for each in RELEASES)


def of_slurmstepd(reason: str) -> bool:
    """Whether slurmstepd took a node out with this reason, its whole text."""
    return any(reason in each.node.of_slurmstepd for each in RELEASES)
