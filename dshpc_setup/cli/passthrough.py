"""The matrix of a test-run of GPU passthrough, on the screen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from textwrap import wrap

from dshpc_setup.errors import Fix
from dshpc_setup.passthrough import Attempt
from dshpc_setup.passthrough.handover import Mechanism
from dshpc_setup.passthrough.testrun import TestRun
from dshpc_setup.passthrough.words import describe_cause
from dshpc_setup.terminal.sanitize import counted

_TITLES: dict[Mechanism, str] = {
    "cdi": "CDI",
    "device-request": "--gpus",
    "runtime": "--runtime",
    "devices": "device nodes",
}
_MARKS = {"works": "ok", "fails": "!!", "impossible": "--", "untested": ".."}
_WORDS = {
    "works": "works",
    "fails": "does not work",
    "impossible": "not possible here",
    "untested": "not tested",
}
_WIDTH = 80
_MOST_EVIDENCE = 8  # lines; all of them are in the JSON


def lines(run: TestRun) -> list[str]:
    """What was tested with, a row for each mechanism, and what to do."""
    said = [f"GPUs   {_gpus(run)}"]
    said += _wrapped(" ".join(run.plan.left_out), "Not used: ") if run.plan.gres else ()
    if run.image is not None and run.user is not None:
        said.append(f"Image  {run.image}, as user {run.user[0]}")
    for row in run.passthrough.attempts:
        said += _row(row)
    for cause in run.passthrough.warnings:
        said += _wrapped(f"{describe_cause(cause)}.", "Warning: ")
    said += _wrapped(_result(run))
    first = run.passthrough.to_fix if run.plan.gres else None
    return said + (list(_steps(first.fix)) if first is not None else [])


def _gpus(run: TestRun) -> str:
    label = "SIMULATED " if run.plan.simulated and run.plan.gres else ""
    names = Counter(gpu.name or f"{gpu.vendor} GPU" for gpu in run.cards)
    is_cut = any(gpu.mig_mode == "enabled" for gpu in run.cards)
    count = len(run.plan.gres)
    cut = f", as {counted(count, 'part')}" if is_cut else ""
    text = ", ".join(f"{number} x {name}" for name, number in names.items())
    return f"{label}{text}{cut}" or "none"


def _row(row: Attempt) -> list[str]:
    time = "" if row.ms is None else f", {row.ms / 1000:.1f} s"
    said = [f"  {_MARKS[row.state]} {_TITLES[row.mechanism]:<13} {_WORDS[row.state]}{time}"]
    if row.state == "untested" and row.reason == "it was not tested":
        return said
    reason = f"{row.reason} ({row.finding})" if row.finding else row.reason
    said += _wrapped(reason, "      ")
    if row.state == "fails" and row.finding is not None:  # else the reason has the words, whole
        told = [line for text in row.evidence for line in text.splitlines() if _tells(line)]
        said += [f"      | {line}" for line in told[:_MOST_EVIDENCE]]
        more = len(told) - _MOST_EVIDENCE
        said += [f"      | ... and {more} lines more: --json"] if more > 0 else []
    return said


def _tells(line: str) -> bool:
    """Not what Docker's client says after every error."""
    return bool(line.strip()) and re.match(r"(?:Run|See) '\w+ run --help'", line) is None


def _result(run: TestRun) -> str:
    found = run.passthrough
    if not run.plan.gres or found.handover.mechanism == "simulated":
        return f"Nothing to test: {found.reason}"
    if found.works:
        return found.reason
    first = found.to_fix
    if first is None or not found.reason.startswith(first.way):
        return f"No container gets the GPUs: {found.reason}"
    return f"No container gets the GPUs. Start with {found.reason}"


def _steps(fix: tuple[Fix, ...]) -> Iterator[str]:
    """What to do; a command has a line of its own, unbroken, to be copied."""
    for step in fix:
        yield from _wrapped(f"{step.words}:" if step.command else step.words, "  - ")
        if step.command:
            yield f"      {step.command}"


def _wrapped(text: str, first: str = "") -> list[str]:
    after = " " * len(first)
    return wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=after,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
