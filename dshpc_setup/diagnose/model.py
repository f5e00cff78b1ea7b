"""What a check is, what it may look at, and what it answers. Values only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import Observed

if TYPE_CHECKING:
    from dshpc_setup.facts import HostFacts
    from dshpc_setup.passthrough import Passthrough
    from dshpc_setup.passthrough.driver_files import DriverFiles
    from dshpc_setup.plan import ClusterPlan

Section = Literal["host", "gpu", "driver", "engine", "passthrough", "slurm", "files"]
FindingState = Literal["ok", "info", "warn", "error", "skipped", "crashed"]

SECTIONS: tuple[Section, ...] = (
    *("host", "gpu", "driver", "engine", "passthrough", "slurm", "files"),
)
FAULTS: tuple[FindingState, ...] = ("error", "warn")
"""The states that are for somebody to fix."""
WRONG: tuple[FindingState, ...] = ("error", "crashed", "warn")
"""The states in which all is not well, the worst first."""


@dataclass(frozen=True)
class CheckInput:
    """All that checks may look at; None: not asked, or there is none."""

    facts: HostFacts
    plan: ClusterPlan | None = None  # None as well where the settings name a GPU that is not there
    whole: bool = True  # all GPUs are handed over, none was selected
    proof: Passthrough | None = None
    endpoint: str | None = None  # an engine chosen by DOCKER_HOST or a docker context
    observed: Observed = field(default_factory=Observed)
    driver_files: DriverFiles | None = None  # where the engine, the built-in one, binds them itself


@dataclass(frozen=True)
class Verdict:
    """What a check answers; make it with `fine`, `note`, `warning`, `fault` or `not_here`."""

    state: FindingState
    cause: str = ""
    evidence: tuple[str, ...] = ()
    fix: tuple[Fix, ...] = ()
    title: str | None = None  # in place of the check's own


def fine(*evidence: str) -> Verdict:
    """It was looked at, and is well."""
    return Verdict("ok", evidence=evidence)


def note(
    cause: str, *evidence: str, fix: tuple[Fix, ...] = (), title: str | None = None
) -> Verdict:
    """Worth knowing, and nothing to fix; `title` where the check's `fault_title` would say too much."""
    return Verdict("info", cause, evidence, fix, title)


def warning(cause: str, *evidence: str, fix: tuple[Fix, ...] = ()) -> Verdict:
    """Jobs run; something is not as it should be, or will go wrong."""
    return Verdict("warn", cause, evidence, fix)


def fault(cause: str, *evidence: str, fix: tuple[Fix, ...] = ()) -> Verdict:
    """Something that was asked for does not work. `cause` is a sentence or two, with full stops."""
    return Verdict("error", cause, evidence, fix)


def not_here(why: str) -> Verdict:
    """There is nothing here that this could be wrong with: "there is no AMD GPU"."""
    return Verdict("skipped", why)


def unknown(why: str, *evidence: str) -> Verdict:
    """It could not be asked, and no other check says why: "the kernel log may not be read"."""
    return Verdict("skipped", why, evidence)


@dataclass(frozen=True)
class LogWords:
    """A pattern of one message of the kernel's log, any case, and what must not stand in it as well."""

    words: str
    unless: str = ""


@dataclass(frozen=True)
class Check:
    """One thing that can be wrong. `look` is pure; an exception of its makes the finding `crashed`.

    `title` is true where all is well ("The node takes jobs"), `fault_title` where it is not, and of a
    note, in the words that somebody would search for ("The node is drained").
    `needs` name the checks without whose being well this one cannot be looked at: it is `skipped`
    then, blocked by the first of them. `because` name the checks whose faults explain a fault of
    this one: it is folded under the first that has one.
    `in_log` says which messages of the kernel's log alone make it a fault, where nothing is known of the
    machine: what the site can look for in a text.
    """

    id: str
    section: Section
    title: str
    fault_title: str
    look: Callable[[CheckInput], Verdict]
    needs: tuple[str, ...] = ()
    because: tuple[str, ...] = ()
    in_log: tuple[LogWords, ...] = ()


@dataclass(frozen=True)
class Finding:
    """What a check found. `blocked_by` of a skipped one and `caused_by` of a fault are root causes."""

    id: str
    section: Section
    state: FindingState
    title: str
    evidence: tuple[str, ...] = ()
    cause: str = ""
    fix: tuple[Fix, ...] = ()
    blocked_by: str | None = None
    caused_by: str | None = None
