"""What a test-run of GPU passthrough found: a row for each mechanism, and the one to use."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from dshpc_setup import codec
from dshpc_setup.errors import Fix
from dshpc_setup.passthrough.handover import WORDS, Handover, Mechanism

AttemptState = Literal["works", "fails", "impossible", "untested"]
"""`impossible`: this engine cannot have it, so no container was started."""


@dataclass(frozen=True)
class Cause:
    """Why something does not work: a finding of the catalogue, in one sentence, and what fixes it.

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
    def to_fix(self) -> Attempt | None:
        """The mechanism whose cause is worth fixing first, where none works.

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
            return codec.from_json(Passthrough, value)
        except ValueError:
            return None
