"""The way from what was looked at to what was concluded, in words: `dshpc detect --explain`."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence

from dshpc_setup.facts import SECTIONS, Because, Conclusion, Disagreement, Evidence, HostFacts

_WIDTH = 80


def lines(facts: HostFacts, only: Collection[str] = SECTIONS, *, times: bool = True) -> list[str]:
    """For every conclusion its evidence and what was not chosen; then all that was looked at."""
    found = ["Why", ""]
    for conclusion in _in_order(facts.conclusions, only):
        found += _conclusion(conclusion)
    if "gpus" in only:
        for disagreement in facts.gpus.disagreements:
            found += _disagreement(disagreement)
    found += ["What was looked at", ""]
    for item in facts.evidence:
        found += _evidence(item, times=times)
    return found


def _in_order(conclusions: Sequence[Conclusion], only: Collection[str]) -> list[Conclusion]:
    """Section by section; within one as they were concluded."""
    places: dict[str, int] = {section: place for place, section in enumerate(SECTIONS)}
    placed = [(places.get(_section(item)), item) for item in conclusions]
    kept = [
        (len(places) if place is None else place, item)
        for place, item in placed
        if place is None or SECTIONS[place] in only
    ]
    return [item for _, item in sorted(kept, key=lambda pair: pair[0])]


def _section(conclusion: Conclusion) -> str:
    word = conclusion.about.replace(".", " ").split(" ")[0]
    return {"gpu": "gpus", "engine": "docker"}.get(word, word)


def _conclusion(it: Conclusion) -> list[str]:
    found = _wrapped(f"{it.about}: ", it.says, below=2)
    for reason in it.because:
        found += _wrapped("  because ", _said(reason), below=10)
    for other in it.instead:
        found += _wrapped("  not ", _said(other), below=10)
    return [*found, ""]


def _disagreement(it: Disagreement) -> list[str]:
    found = _wrapped("The layers disagree about ", it.about, below=2)
    for layer in it.layers:
        found += _wrapped("  ", _said(layer), below=10)
    finding = f" ({it.finding})" if it.finding else ""
    return [*found, *_wrapped("  so ", f"{it.meaning}{finding}", below=10), ""]


def _evidence(it: Evidence, *, times: bool) -> list[str]:
    took = f"{it.ms:>7.1f} ms  " if times else ""
    code = f" (code {it.code})" if it.code is not None else ""
    found = _wrapped(f"{it.probe:<15} {it.state:<11} {took}", f"{it.source}{code}", below=16)
    for line in (it.detail or "").splitlines():
        found += _wrapped(" " * 16, line, below=16)
    return found


def _said(it: Because) -> str:
    return f"{it.source}: {it.says}" if it.says else it.source


def _wrapped(start: str, text: str, *, below: int) -> list[str]:
    printable = "".join(each if each.isprintable() else " " for each in f"{start}{text}")
    return textwrap.wrap(
        printable,
        _WIDTH,
        subsequent_indent=" " * below,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [start.rstrip()]
