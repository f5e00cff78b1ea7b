"""What the repairs came to, for people and as the object of `--json`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dshpc_setup.diagnose import Finding, exit_code
from dshpc_setup.diagnose import to_json as findings_json
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.repair.choice import roots
from dshpc_setup.repair.model import Repair

SCHEMA = "dshpc.fix/1"
DoneState = Literal["done", "failed", "declined", "left-out", "interrupted", "planned"]

_WORDS: dict[DoneState, str] = {
    "done": "Done",
    "failed": "Failed",
    "declined": "Not done",
    "left-out": "Left out",
    "interrupted": "Interrupted",
    "planned": "To be done",
}


@dataclass(frozen=True)
class Done:
    """How one repair went; `why` of one that was left out; `backups`: copies made for it."""

    repair: Repair
    state: DoneState
    why: str = ""
    error: DshpcError | None = None
    backups: tuple[str, ...] = ()
    ms: float = 0.0

    def to_json(self) -> dict[str, Any]:
        repair = self.repair
        return {
            "repair": repair.kind,
            "about": repair.about or None,
            "mends": list(repair.fixes),
            "does": repair.does,
            "commands": list(repair.shown()),
            "root": repair.root,
            "copies": list(repair.changes),
            "stops": repair.stops,
            "loss": repair.loss or None,
            "after": list(repair.after),
            "state": self.state,
            "why": self.why or None,
            "error": self.error.to_json() if self.error else None,
            "backups": list(self.backups),
            "ms": self.ms,
        }


@dataclass(frozen=True)
class Outcome:
    """A run of `--fix`. `after`: the findings of the checks that were made again; None: not made."""

    before: tuple[Finding, ...]
    done: tuple[Done, ...]
    not_safe: dict[str, str]
    after: tuple[Finding, ...] | None = None
    dry_run: bool = False
    strict: bool = False  # warnings count as errors
    interrupted: bool = False
    error: DshpcError | None = None  # why nothing was done at all, or why the checks were not made

    @property
    def exit_code(self) -> int:
        """That of the findings as they are now; 2 where a repair failed, 3 where it is not known."""
        if self.interrupted:
            return int(Exit.INTERRUPTED)
        if self.error is not None:
            return int(self.error.exit_code)
        if any(item.state == "failed" for item in self.done):
            return int(Exit.ERROR)
        changed = any(item.state == "done" for item in self.done)
        if self.after is None and changed:
            return int(Exit.INCOMPLETE)
        now = self.before if self.after is None else self.after
        return int(exit_code(now, strict=self.strict))

    def gone(self, identity: str) -> bool | None:
        """Whether the fault is no more; None where it was not, or could not be, looked at again."""
        found = next((item for item in self.after or () if item.id == identity), None)
        if found is None or found.state in ("skipped", "crashed"):
            return None
        return found.state in ("ok", "info")

    @property
    def new(self) -> tuple[Finding, ...]:
        """Faults that come to light only now."""
        before = {item.id for item in self.before if item.state in ("error", "warn")}
        return tuple(item for item in roots(self.after or ()) if item.id not in before)

    def to_json(self) -> dict[str, Any]:
        """The `dshpc.fix/1` object."""
        now = {item.id: item for item in self.after or ()}
        changed = any(item.state in ("done", "failed", "interrupted") for item in self.done)
        doctor = self.before if self.after is None and not changed else self.after
        return {
            "schema": SCHEMA,
            "exit_code": self.exit_code,
            "dry_run": self.dry_run,
            "interrupted": self.interrupted,
            "repairs": [item.to_json() for item in self.done],
            "findings": [
                {
                    "id": item.id,
                    "title": item.title,
                    "before": item.state,
                    "after": now[item.id].state if item.id in now else None,
                    "gone": self.gone(item.id),
                    "not_safe": self.not_safe.get(item.id),
                    "fix": [asdict(fix) for fix in now.get(item.id, item).fix],
                }
                for item in roots(self.before)
            ],
            "new": [item.id for item in self.new],
            "doctor": None if doctor is None else findings_json(doctor, strict=self.strict),
            "error": self.error.to_json() if self.error else None,
        }


def planned_lines(repairs: Sequence[Repair], not_safe: dict[str, str]) -> list[str]:
    """All that is to be done, before anything is."""
    if not repairs and not not_safe:
        return ["There is nothing to fix."]
    if not repairs:
        return ["Nothing here is safe to fix automatically.", *_by_hand(not_safe, ())]
    said = ["1 repair:" if len(repairs) == 1 else f"{len(repairs)} repairs, in this order:"]
    for number, repair in enumerate(repairs, 1):
        said.append(f"{number}. {repair.does}, for {', '.join(repair.fixes)}")
        said += [f"     {line}" for line in (*repair.shown(), *filter(None, [repair.loss]))]
        said += [
            f"     a copy before, where it is there: {path}.dshpc-backup-TIME"
            for path in repair.changes
        ]
    return said + _by_hand(not_safe, repairs)


def _by_hand(not_safe: dict[str, str], repairs: Sequence[Repair]) -> list[str]:
    """Faults that are left to people, whole or from some step on."""
    begun = {identity for repair in repairs for identity in repair.fixes}
    return [
        f"{'By hand then' if identity in begun else 'By hand'}: {identity}"
        + (f". {why}" if why else "")
        for identity, why in not_safe.items()
    ]


def lines(outcome: Outcome) -> list[str]:
    """What was done, and whether each fault is gone."""
    if outcome.dry_run:
        repairs = [item.repair for item in outcome.done]
        return [*planned_lines(repairs, outcome.not_safe), "Nothing was changed (--dry-run)."]
    said: list[str] = []
    for item in outcome.done:
        why = f": {item.error.brief}" if item.error else f": {item.why}" if item.why else ""
        said.append(f"{_WORDS[item.state]}: {item.repair.does}{why}")
        if item.error is not None:
            said += [f"    {line}" for line in item.error.details.strip().splitlines()]
            said += [f"    - {step}" for step in item.error.resolution]
        said += [f"    the former file: {shlex.quote(path)}" for path in item.backups]
    if outcome.interrupted:
        return [*said, "Interrupted: the checks were not made again. See: dshpc doctor"]
    if outcome.after is None:
        return said
    for finding in roots(outcome.before):
        said += _finding_lines(outcome, finding)
    for finding in outcome.new:
        said.append(f"New: {finding.id} {finding.title}. See: dshpc doctor")
    return said


def _finding_lines(outcome: Outcome, before: Finding) -> list[str]:
    gone = outcome.gone(before.id)
    if gone:
        return [f"Gone: {before.id} {before.title}"]
    now = next((item for item in outcome.after or () if item.id == before.id), before)
    if gone is None:
        why = f": {now.cause}" if now.state == "skipped" and now.cause else ""
        return [f"Not known: {before.id} {before.title}{why}"]
    said = [f"Still there: {now.id} {now.title}"]
    for fix in now.fix:
        said.append(f"    -> {fix}")
    return said
