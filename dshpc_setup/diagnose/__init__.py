"""Checks: what is known in, findings out. Pure; one stable id each; a crash takes no other along."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dshpc_setup.diagnose.model import FAULTS, Check, CheckInput, Finding, FindingState
from dshpc_setup.engine_client import in_podmans_words
from dshpc_setup.errors import Exit, words_of

__all__ = ["SCHEMA", "CheckInput", "Finding", "catalogue", "diagnose", "exit_code", "to_json"]

SCHEMA = "dshpc.doctor/1"


def catalogue() -> tuple[Check, ...]:
    """Every check, in the order of the sections."""
    from dshpc_setup.diagnose import driver, engine, files, gpu, host, packages, passthrough, slurm

    before = (*host.CHECKS, *gpu.CHECKS, *driver.checks())
    rooms = (engine, passthrough, packages, slurm, files)
    return (*before, *(check for room in rooms for check in room.CHECKS))


def diagnose(known: CheckInput, checks: Sequence[Check] | None = None) -> tuple[Finding, ...]:
    """A finding for each check, in their order; all of the catalogue where none are given."""
    checks = catalogue() if checks is None else checks
    by_id = {check.id: check for check in checks}
    found: dict[str, Finding] = {}
    for check in checks:
        _look(check, by_id, known, found)
    told = (_with_cause(by_id, found, found[check.id]) for check in checks)
    if known.facts.engine.by_command:
        return tuple(map(_of_podman, told))
    return tuple(told)


def _of_podman(finding: Finding) -> Finding:
    """With the commands that can be typed where the engine is Podman by its own command."""
    words = in_podmans_words
    fix = tuple(
        replace(each, text=words(each.text), command=each.command and words(each.command))
        for each in finding.fix
    )
    return replace(finding, cause=words(finding.cause), fix=fix)


def _look(
    check: Check, by_id: Mapping[str, Check], known: CheckInput, found: dict[str, Finding]
) -> Finding:
    """Its finding, after those of the checks that it needs."""
    if check.id in found:
        return found[check.id]
    for need in check.needs:
        if need not in by_id:
            continue  # left out by --only or --skip
        before = _look(by_id[need], by_id, known, found)
        if before.state not in ("ok", "warn"):
            blocked = Finding(
                check.id, check.section, "skipped", check.title,
                cause=before.cause, blocked_by=before.blocked_by or before.id,
            )  # fmt: skip
            return found.setdefault(check.id, blocked)
    try:
        verdict = check.look(known)
    except Exception as error:  # noqa: BLE001 -- one broken check must not hide the others
        says = (words_of(error),)
        crashed = Finding(check.id, check.section, "crashed", check.title, says)
        return found.setdefault(check.id, crashed)
    title = verdict.title or (
        check.title if verdict.state in ("ok", "skipped") else check.fault_title
    )
    finding = Finding(
        check.id, check.section, verdict.state, title, verdict.evidence, verdict.cause, verdict.fix
    )
    return found.setdefault(check.id, finding)


def _with_cause(
    by_id: Mapping[str, Check], found: Mapping[str, Finding], finding: Finding
) -> Finding:
    """A fault with the root of what explains it."""
    if finding.state not in FAULTS:
        return finding
    root, seen = finding, {finding.id}
    while True:
        causes = (found[item] for item in by_id[root.id].because if item in found)
        cause = next((item for item in causes if item.state in FAULTS), None)
        if cause is None or cause.id in seen:
            break
        seen.add(cause.id)
        root = cause
    return finding if root is finding else replace(finding, caused_by=root.id)


def exit_code(findings: Sequence[Finding], *, strict: bool = False) -> Exit:
    """0 fine, 1 warnings, 2 errors, 3 where a check crashed. `strict`: warnings count as errors."""
    states = {finding.state for finding in findings}
    if "error" in states or (strict and "warn" in states):
        return Exit.ERROR
    if "crashed" in states:
        return Exit.INCOMPLETE
    return Exit.WARNING if "warn" in states else Exit.OK


def to_json(findings: Sequence[Finding], *, strict: bool = False) -> dict[str, Any]:
    """The `dshpc.doctor/1` object."""
    states: tuple[FindingState, ...] = ("ok", "info", "warn", "error", "skipped", "crashed")
    return {
        "schema": SCHEMA,
        "exit_code": int(exit_code(findings, strict=strict)),
        "summary": {state: sum(finding.state == state for finding in findings) for state in states},
        "findings": [_finding_json(finding) for finding in findings],
    }


def _finding_json(finding: Finding) -> dict[str, Any]:
    fixes = [
        {"text": fix.words, "command": fix.command, "automatic": fix.automatic, "step": fix.step}
        for fix in finding.fix
    ]
    return {**asdict(finding), "fix": fixes}
