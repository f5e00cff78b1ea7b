"""The findings as JUnit's XML, which every build server shows: a test case for each check."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.model import SECTIONS
from dshpc_setup.errors import Fix

# What XML 1.0 has no way to write (its section 2.2), and the control characters that it discourages
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(findings: Sequence[Finding], *, strict: bool = False) -> str:
    """The whole file. An error is a failure, with `strict` a warning too; a crash is an error."""
    top = ElementTree.Element("testsuites", name="dshpc doctor")
    for section in SECTIONS:
        of_section = [finding for finding in findings if finding.section == section]
        if of_section:
            _suite(top, section, of_section, strict)
    ElementTree.indent(top)
    text = ElementTree.tostring(top, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'


def _suite(
    top: ElementTree.Element, section: str, findings: Sequence[Finding], strict: bool
) -> None:
    suite = ElementTree.SubElement(
        top,
        "testsuite",
        name=section,
        tests=str(len(findings)),
        failures=str(sum(_fails(finding, strict) for finding in findings)),
        errors=str(sum(finding.state == "crashed" for finding in findings)),
        skipped=str(sum(finding.state == "skipped" for finding in findings)),
    )
    for finding in findings:
        # by id alone: a title is another where all is well, and a server compares by name
        case = ElementTree.SubElement(suite, "testcase", classname=section, name=finding.id)
        outcome = _outcome(finding, strict)
        if outcome is not None:
            told = ElementTree.SubElement(case, outcome, message=_allowed(_message(finding)))
            if outcome != "skipped":
                told.set("type", finding.state)
                told.text = _allowed("\n".join(_advice(finding)))
        out = ElementTree.SubElement(case, "system-out")
        out.text = _allowed("\n".join(_told(finding)))


def _fails(finding: Finding, strict: bool) -> bool:
    return finding.state == "error" or (strict and finding.state == "warn")


def _outcome(finding: Finding, strict: bool) -> str | None:
    """The element that says how it ended; none: it passed."""
    if _fails(finding, strict):
        return "failure"
    return {"crashed": "error", "skipped": "skipped"}.get(finding.state)


def _message(finding: Finding) -> str:
    if finding.state == "skipped":
        blocked = f"blocked by {finding.blocked_by}" if finding.blocked_by else ""
        return ": ".join(filter(None, (blocked, finding.cause)))
    return finding.title


def _advice(finding: Finding) -> Iterator[str]:
    if finding.cause:
        yield finding.cause
    if finding.caused_by:
        yield f"because of {finding.caused_by}"
    yield from map(_step, finding.fix)


def _step(fix: Fix) -> str:
    return f"-> {fix}"


def _told(finding: Finding) -> Iterator[str]:
    """State, title, evidence; of a warning that fails nothing, its advice as well."""
    yield f"{finding.state}: {finding.title}"
    if finding.state in ("info", "warn"):
        yield from _advice(finding)
    yield from finding.evidence


def _allowed(text: str) -> str:
    return _FORBIDDEN.sub("", text)
