"""The words that a report may hold: those of the programs that it tells of, and no others.

The lists hold no names of people and no words of what somebody's work is about. A word that is missing is
replaced by "word1"; one that a rule of doctor reads must be there, which the tests see to.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

LISTS = ("dshpc", "slurm", "hardware")

# People are called so, too: they are words only where they are written small, as programs write them.
_ALSO_NAMES = frozenset(
    "banks best bond brand brown carlo cash chase dean doctor grace grant green held "
    "holder iris lane lang little magic mark marks master max may meta monte nova post rich said sun "
    "thor vega wall warp watts xavier gold platinum hopper kepler ampere volta".split()
)


@cache
def _words() -> frozenset[str]:
    here = Path(__file__).parent
    texts = ((here / f"{name}.txt").read_text(encoding="ascii") for name in LISTS)
    lines = (line for text in texts for line in text.splitlines() if not line.startswith("#"))
    return frozenset(word for line in lines for word in line.split())


def is_listed(word: str, *, of_kernel: bool = False) -> bool:
    """Whether programs write this word, in whatever case that they do.

    `of_kernel`: in a text of a kernel or a driver, where a name that people have is a product's.
    """
    small = word.lower()
    if small not in _words():
        return False
    return of_kernel or small not in _ALSO_NAMES or word == small
