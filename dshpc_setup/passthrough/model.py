"""What a test-run of GPU passthrough found: a row for each mechanism, and the one to use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from dshpc_setup.errors import Fix, Step
from dshpc_setup.passthrough.handover import WORDS, Handover, Mechanism

AttemptState = Literal["works", "fails", "impossible", "untested"]
"""`impossible`: this engine cannot have it, so no container was started."""


@dataclass(frozen=True)
class Cause:
    """Why something does not work: a finding of the catalogue, in one sentence, and what mends it.

    `finding` is None where no known cause fits: the sentence then tells what was seen.
    """

    finding: str | None  # "DSH-DK-007"
    says: str  # no full stop at its end
    fix: tuple[Fix, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """A mechanism and how it went."""

    mechanism: Mechanism
    state: AttemptState
    reason: str  # one sentence: what was proven, what is wrong, why it cannot be
    finding: str | None = None
    evidence: tuple[str, ...] = ()  # what the engine and the container said, whole
    fix: tuple[Fix, ...] = ()
    handover: Handover | None = None  # what was tried; None where there was nothing to try
    ms: float | None = None

    @property
    def way(self) -> str:
        """The mechanism in words: "CDI", "the amd runtime"."""
        if self.handover is not None:
            return self.handover.way
        if self.mechanism == "runtime" and self.state == "impossible":
            return "the vendor's runtime"
        return WORDS[self.mechanism]

    def failed(self, cause: Cause, *evidence: str, ms: float | None = None) -> Attempt:
        """The same mechanism with the cause of its failure."""
        return Attempt(
            self.mechanism, "fails", cause.says, cause.finding,
            tuple(filter(None, evidence)), cause.fix, self.handover, ms,
        )  # fmt: skip


@dataclass(frozen=True)
class Passthrough:
    """How GPUs reach the container, or why they cannot; `attempts` best mechanism first."""

    handover: Handover
    reason: str  # one sentence: what was proven, or why there is none
    attempts: tuple[Attempt, ...] = ()
    key: str = ""  # what the proof was made for: another key needs another proof
    warnings: tuple[Cause, ...] = ()  # what may yet fail: an image newer than the driver, ...
    user: tuple[int, int] | None = None  # (uid, gid) that the nodes were opened as

    @property
    def works(self) -> bool:
        return self.handover.mechanism != "none"

    @property
    def failures(self) -> tuple[Attempt, ...]:
        """The mechanisms that were tried and do not work."""
        return tuple(item for item in self.attempts if item.state == "fails")

    @property
    def to_mend(self) -> Attempt | None:
        """The mechanism whose cause is worth mending first, where none works.

        The best one that was tried and whose cause is known; else one that a step would make possible.
        """
        ranks = (
            [row for row in self.failures if row.finding is not None],
            self.failures,
            [row for row in self.attempts if row.fix],
            self.attempts,
        )
        return None if self.works else next((rows[0] for rows in ranks if rows), None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: object) -> Passthrough | None:
        """The remembered proof; None where it is not one of this version's. Never raises."""
        try:
            return _passthrough(value)
        except (KeyError, TypeError, ValueError):
            return None


# -- reading back; each raises KeyError, TypeError or ValueError for what is none of ours ----------


def _passthrough(value: object) -> Passthrough:
    fields = _mapping(value)
    return Passthrough(
        _handover(fields["handover"]),
        _text(fields["reason"]),
        tuple(_attempt(item) for item in _list(fields["attempts"])),
        _text(fields["key"]),
        tuple(_cause(item) for item in _list(fields["warnings"])),
        _user(fields["user"]),
    )


def _user(value: object) -> tuple[int, int] | None:
    if value is None:
        return None
    uid, gid = _list(value)
    if type(uid) is not int or type(gid) is not int:
        raise TypeError("user")
    return uid, gid


def _attempt(value: object) -> Attempt:
    fields = _mapping(value)
    handover, ms = fields["handover"], fields["ms"]
    if not (ms is None or (type(ms) in (int, float) and math.isfinite(ms))):
        raise TypeError("ms")
    return Attempt(
        _one_of(get_args(Mechanism), fields["mechanism"]),
        _one_of(get_args(AttemptState), fields["state"]),
        _text(fields["reason"]),
        _text_or_none(fields["finding"]),
        _texts(fields["evidence"]),
        tuple(_fix(item) for item in _list(fields["fix"])),
        None if handover is None else _handover(handover),
        ms,
    )


def _cause(value: object) -> Cause:
    fields = _mapping(value)
    fix = tuple(_fix(item) for item in _list(fields["fix"]))
    return Cause(_text_or_none(fields["finding"]), _text(fields["says"]), fix)


def _fix(value: object) -> Fix:
    fields = _mapping(value)
    if not isinstance(fields["automatic"], bool):
        raise TypeError("automatic")
    step = fields.get("step", "do")  # not in a record of an earlier version
    if step not in get_args(Step):
        raise ValueError("step")
    return Fix(_text(fields["text"]), _text_or_none(fields["command"]), fields["automatic"], step)


def _handover(value: object) -> Handover:
    fields = _mapping(value)
    groups = _list(fields["group_add"])
    if not all(type(group) is int for group in groups):
        raise TypeError("group_add")
    environment = _mapping(fields["environment"])
    return Handover(
        _one_of(get_args(Mechanism), fields["mechanism"]),
        ids=_texts(fields["ids"]),
        driver=_text(fields["driver"]),
        devices=_texts(fields["devices"]),
        volumes=_texts(fields["volumes"]),
        group_add=tuple(groups),
        environment={name: _text(item) for name, item in environment.items()},
    )


def _one_of(known: Sequence[str], value: object) -> Any:
    if value not in known:
        raise ValueError(value)
    return value


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError("no object")
    return value


def _list(value: object) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("no list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in _list(value))
