"""Figures of speed in the documents: each says by which benchmark it can be had again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Deadlines and intervals are in seconds, so these alone cannot tell; findings tell of others' programs
FIGURE = re.compile(r"\d ms\b|\bjobs? (a|per) second\b|times as long\b", re.I)
SOURCE = re.compile(r"benchmarks/(\w+\.py)")
DOCUMENTS = [
    ROOT / "README.md",
    *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "findings"),
]


def paragraphs(text: str) -> Iterator[str]:
    """Rows of tables and items of lists are some of their own; what a terminal shows is none."""
    shown = re.sub(r"(?ms)^```.*?^```$", "", text)
    for block in re.split(r"\n\s*\n", shown):
        lines = block.splitlines()
        yield from lines if lines and lines[0].startswith(("|", "- ")) else [block]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_figure_has_a_source(path: Path) -> None:
    told = [each for each in paragraphs(path.read_text()) if FIGURE.search(each)]
    assert [each for each in told if not SOURCE.search(each)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_is_there(path: Path) -> None:
    named = set(SOURCE.findall(path.read_text()))
    assert named <= {each.name for each in (ROOT / "benchmarks").glob("*.py")}


def test_what_counts_as_a_figure() -> None:
    text = "| a | 3 ms |\n| b | 5 s |\n\ntwice, at 9 jobs a second\n\n```\n4 ms\n```\n\n- 1.5 times as long"
    found = [bool(FIGURE.search(each)) for each in paragraphs(text)]
    assert found == [True, False, True, True]
