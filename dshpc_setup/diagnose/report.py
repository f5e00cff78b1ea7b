"""What doctor has to say of one look: the findings that were asked for, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dshpc_setup.diagnose import Finding, exit_code, to_json
from dshpc_setup.diagnose.model import WRONG
from dshpc_setup.errors import Exit
from dshpc_setup.facts import Unanswered


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
