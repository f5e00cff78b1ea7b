"""What doctor has to say of one look: the findings that were asked for, and what stands beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.diagnose import Finding, exit_code, to_json
from dshpc_setup.diagnose.model import WRONG
from dshpc_setup.errors import Exit
from dshpc_setup.facts import Unanswered

CONTAINER = "the cluster's container"  # among what is unanswered
_SETTINGS = ("DSH-FI-011", "DSH-HO-012")  # all else is looked at without those that are wrong


@dataclass(frozen=True)
class Report:
    """The findings that were asked for, and what stands beside them."""

    findings: tuple[Finding, ...]
    every: tuple[Finding, ...]  # those of left-out checks too: they may be the cause
    unanswered: tuple[Unanswered, ...] = ()  # what timed out or could not be asked
    strict: bool = False
    inside: bool = False  # it was made in the cluster's container
    # What the findings are not about, or are only about, a sentence each
    notes: tuple[str, ...] = ()

    @property
    def left_out(self) -> tuple[Finding, ...]:
        """Faults that nobody asked for, because of which what was asked for could not be looked at."""
        shown = {finding.id for finding in self.findings}
        blockers = {finding.blocked_by for finding in self.findings} - shown
        return tuple(it for it in self.every if it.id in blockers and it.state in WRONG)

    @property
    def exit_code(self) -> Exit:
        """Of the contract; 3 as well where something is not known and no error outranks that."""
        code = exit_code(self.findings, strict=self.strict)
        unknown = self.unanswered or self.left_out
        return Exit.INCOMPLETE if unknown and code != Exit.ERROR else code

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.doctor/1` object."""
        return {
            **to_json(self.findings, strict=self.strict),
            "exit_code": int(self.exit_code),
            "strict": self.strict,
            "unanswered": [str(item) for item in self.unanswered],
            "left_out": [{"id": it.id, "title": it.title} for it in self.left_out],
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Group:
    """A root cause, what it explains, and how many checks could not be made because of it."""

    root: Finding
    explained: tuple[Finding, ...]
    blocked: int

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """The worst first, of these the settings, then what explains most."""
        worst = min(WRONG.index(each.state) for each in (self.root, *self.explained))
        settings = self.root.id not in _SETTINGS
        return worst, settings, -len(self.explained), -self.blocked


def is_wrong(finding: Finding) -> bool:
    """Whether something is to be done about it."""
    return finding.state in WRONG


def _root(finding: Finding, wrong: Mapping[str, Finding]) -> Finding:
    """What explains it among what is shown; itself where nothing does."""
    root, seen = finding, {finding.id}
    while (cause := wrong.get(root.caused_by or "")) is not None:
        root = cause
        if root.id in seen:
            return finding
        seen.add(root.id)
    return root


def roots(shown: Sequence[Finding]) -> list[Finding]:
    """What nothing else that is shown explains."""
    wrong = {finding.id: finding for finding in shown if is_wrong(finding)}
    return [finding for finding in wrong.values() if _root(finding, wrong) is finding]


def groups(shown: Sequence[Finding]) -> list[Group]:
    """What is wrong, by its root causes, the worst first."""
    wrong = {finding.id: finding for finding in shown if is_wrong(finding)}
    found = []
    for root in roots(shown):
        explained = tuple(
            each for each in wrong.values() if each is not root and _root(each, wrong) is root
        )
        names = {root.id, *(each.id for each in explained)}
        found.append(Group(root, explained, sum(each.blocked_by in names for each in shown)))
    return sorted(found, key=lambda group: group.rank)
