"""One row of the tables beside this file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sign:
    """Findings, the likeliest first; `words` tells them, where `also` stands in the text as well.

    Both are patterns without regard to capitals, of a text that is one line, with one space between words.
    What a group of `words` holds is what was said, else all of it.
    """

    findings: tuple[str, ...]
    words: str
    also: str = ""


def sign(findings: str, *words: str, also: str = "") -> Sign:
    """Of the findings' short ids, with a space between, and of words of which one is enough."""
    return Sign(tuple(f"DSH-{each}" for each in findings.split()), "|".join(words), also)
