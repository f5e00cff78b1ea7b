"""The findings of doctor on a terminal: what is wrong first, then a line for each section."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dshpc_setup.cli.terminal import Ink, printable, printable_lines, wrapped
from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.model import FAULTS, SECTIONS, Section
from dshpc_setup.diagnose.report import CONTAINER, Group, Report, groups, is_wrong, roots
from dshpc_setup.facts import Unanswered
from dshpc_setup.terminal.command_names import as_called, dshpc_command
from dshpc_setup.terminal.sanitize import counted

_MARKS = {"ok": "ok", "info": "--", "warn": "!", "error": "!!", "skipped": "..", "crashed": "??"}
_GPUS = (
    "DSH-GP-001"  # whether there are any is told also where there are none, and nothing is wrong
)
_MOST_EVIDENCE = 8  # lines of one finding; all of them with -v
_INDENT = " " * 3


def lines(report: Report, ink: Ink, *, verbose: bool = False) -> list[str]:
    """The root causes, a line for each section (with -v its findings), and how it stands."""
    every = {finding.id: _clean(finding) for finding in report.every}
    shown = [every[finding.id] for finding in report.findings]
    causes = roots(shown)
    said: list[str] = []
    for group in groups(shown):
        said += [*_group(group, every, ink, verbose), ""]
    for left_out in report.left_out:
        said += [*_left_out(every[left_out.id], shown, ink), ""]
    for finding in shown:
        if finding.state == "info" and finding.id == _GPUS:
            said += [f"{_mark(finding, ink)} {finding.title} ({finding.id})"]
            said += [*_body(replace(finding, evidence=()), _INDENT), ""]
    for section in SECTIONS:
        of_section = [finding for finding in shown if finding.section == section]
        if of_section:
            said.append(_summary(section, of_section, every, ink))
            said += _details(of_section, {root.id for root in causes}, ink) if verbose else ()
    notes = [line for text in report.notes for line in wrapped(_sentence(text))]
    return [*said, "", *notes, *_unanswered(report, shown), *_closing(report, shown, ink)]


def _clean(finding: Finding) -> Finding:
    """The same without signs that command a terminal, its evidence line by line."""
    return replace(
        finding,
        title=_sentence(finding.title),
        cause=_sentence(finding.cause),
        evidence=tuple(line for text in finding.evidence for line in printable_lines(text) if line),
        fix=tuple(
            replace(
                fix,
                text=_sentence(fix.words),
                command="\n".join(printable_lines(fix.command or "")) or None,
            )
            for fix in finding.fix
        ),
    )


def _sentence(text: str) -> str:
    return printable(" ".join(text.split()))


def _group(group: Group, every: Mapping[str, Finding], ink: Ink, verbose: bool) -> Iterator[str]:
    root = group.root
    yield f"{_mark(root, ink)} {ink.bold(root.title)} ({root.id})"
    yield from _body(root, _INDENT, None if verbose else _MOST_EVIDENCE)
    because = every.get(root.caused_by or "")
    if because is not None:  # left out by --only or --skip, and yet the cause
        yield from wrapped(f"because of: {because.title} ({because.id})", _INDENT)
    for each in group.explained:
        yield from wrapped(f"explains: {each.title} ({each.id})", _INDENT)
    if group.blocked:
        yield f"{_INDENT}{counted(group.blocked, 'check')} could not be made because of it"


def _left_out(cause: Finding, shown: Sequence[Finding], ink: Ink) -> Iterator[str]:
    """A fault that was not asked for, and keeps what was asked for from being looked at."""
    yield f"{_mark(cause, ink)} {ink.bold(cause.title)} ({cause.id}, left out by --only or --skip)"
    yield from wrapped(as_called(cause.cause), _INDENT)
    blocked = sum(each.blocked_by == cause.id for each in shown)
    yield f"{_INDENT}{counted(blocked, 'check')} could not be made because of it"


def _mark(finding: Finding, ink: Ink) -> str:
    colours = {"error": ink.red, "crashed": ink.red, "warn": ink.yellow, "ok": ink.green}
    mark = f"{_MARKS[finding.state]:<2}"
    return colours[finding.state](mark) if finding.state in colours else mark


def _body(finding: Finding, indent: str, most: int | None = None) -> Iterator[str]:
    """Cause, evidence as it was read, and what fixes it, each command on a line of its own."""
    if finding.state == "crashed":
        yield from wrapped("This check itself failed, so it says nothing of the machine.", indent)
    yield from wrapped(as_called(finding.cause), indent)
    yield from (f"{indent}  {as_called(line)}" for line in finding.evidence[:most])
    more = 0 if most is None else len(finding.evidence) - most
    if more > 0:
        yield f"{indent}  ... and {counted(more, 'line')} more: -v"
    for fix in finding.fix:
        text = f"{fix.words}:" if fix.command else fix.words
        yield from wrapped(as_called(text), f"{indent}-> ")
        yield from (f"{indent}     {as_called(line)}" for line in (fix.command or "").splitlines())
    if finding.state == "crashed":
        yield from wrapped(
            "It is a defect of dsHPC setup: report it with the above.", f"{indent}-> "
        )


def _summary(
    section: Section, findings: Sequence[Finding], every: Mapping[str, Finding], ink: Ink
) -> str:
    """ "gpu          6 ok, 1 noted, 3 skipped"."""
    number = {state: sum(each.state == state for each in findings) for state in _MARKS}
    blocked = sum(_is_blocked(each, every) for each in findings)
    parts = (
        (number["ok"], f"{number['ok']} ok"),
        (number["error"], ink.red(counted(number["error"], "problem"))),
        (number["warn"], ink.yellow(counted(number["warn"], "warning"))),
        (number["crashed"], ink.red(f"{number['crashed']} crashed")),
        (number["info"], f"{number['info']} noted"),
        (blocked, f"{blocked} blocked"),
        (number["skipped"] - blocked, f"{number['skipped'] - blocked} skipped"),
    )
    return f"{section:<12} " + ", ".join(text for count, text in parts if count)


def _is_blocked(finding: Finding, every: Mapping[str, Finding]) -> bool:
    """Whether a fault keeps it from being looked at; else there is nothing here to look at."""
    blocker = every.get(finding.blocked_by or "")
    return finding.state == "skipped" and blocker is not None and is_wrong(blocker)


def _details(findings: Sequence[Finding], above: set[str], ink: Ink) -> Iterator[str]:
    """Each finding with its evidence, what is only worth knowing at the end."""
    for finding in sorted(findings, key=lambda each: each.state == "info"):
        yield f"  {_mark(finding, ink)} {finding.title} ({finding.id})"
        if finding.id in above:
            yield "       see above"
            continue
        if finding.blocked_by:  # the cause is the blocker's own
            text = f"not looked at because of {finding.blocked_by}: {finding.cause}"
            yield from wrapped(as_called(text), " " * 7)
            continue
        yield from _body(finding, " " * 7)
        if finding.caused_by:
            yield f"       because of {finding.caused_by}"


def _unanswered(report: Report, shown: Sequence[Finding]) -> Iterator[str]:
    """What could not be asked, less what a fault says in the same words, or a root cause for it."""
    faults = [finding for finding in shown if is_wrong(finding)]
    told = "\n".join("\n".join((each.cause, *each.evidence)) for each in faults).casefold()
    # Other programs' answers, for the most part: what a fault has among its evidence
    left = [each for each in report.unanswered if _shown(each) not in told]
    if left:
        yield "Not everything could be asked:"
        for each in left:
            yield from wrapped(_sentence(str(each)), "  - ")
        where = " (on the host)" if report.inside else ""
        if any(each.about == CONTAINER for each in left):
            yield as_called("  Ask the container again: dshpc doctor")
        if any(each.about != CONTAINER for each in left):
            yield as_called(f"  Where each answer came from{where}: dshpc detect --explain")
        yield ""


def _shown(item: Unanswered) -> str:
    return _sentence(item.detail or item.state).casefold()


def _closing(report: Report, shown: Sequence[Finding], ink: Ink) -> list[str]:
    """How many things are wrong, and where more is told."""
    errors, warnings, crashed = (
        sum(each.state == state for each in shown) for state in ("error", "warn", "crashed")
    )
    parts = [
        *([counted(errors, "problem")] if errors else ()),
        *([counted(warnings, "warning")] if warnings else ()),
        *([f"{counted(crashed, 'check')} crashed"] if crashed else ()),
    ]
    if not parts:
        but = ", but not everything could be asked" if report.unanswered else ""
        return [ink.bold(f"No problem found{_among(report, shown)}{but}.")]
    found = groups(shown)
    fewer = len(found) < sum((errors, warnings))
    causes = f", from {counted(len(found), 'cause')}" if fewer else ""
    strict = " With --strict, warnings count as problems." if report.strict and warnings else ""
    told = next((group.root.id for group in found if group.root.state in FAULTS), None)
    where = "Details, on the host" if report.inside else "Details"
    more = f" {where}: {dshpc_command()} explain {told}" if told else ""
    return [f"{ink.bold(', '.join(parts) + causes + '.')}{strict}{more}"]


def _among(report: Report, shown: Sequence[Finding]) -> str:
    """By how many checks, where these are not all; those that were skipped have found nothing."""
    if len(shown) == len(report.every):
        return ""
    made = sum(each.state != "skipped" for each in shown)
    not_made = sum(each.blocked_by in {it.id for it in report.left_out} for each in shown)
    rest = f"; {not_made} could not be made" if not_made else ""
    return f" by {counted(made, 'check')}{rest}"
