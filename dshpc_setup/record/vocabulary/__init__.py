"""The words that a report may hold: those of the programs that it tells of, and no others.

The lists hold no names of people and no words of what somebody's work is about; a vendor's own words come
from its descriptor. A word that is missing is replaced by "word1"; one that a rule of doctor reads must be
there, which the tests see to.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from dshpc_setup import gpu_vendors

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
    return frozenset(word for line in lines for word in line.split()) | _of_vendors()


def _of_vendors() -> frozenset[str]:
    """What their programs, modules and device nodes are called, and the words that only they have."""
    texts: list[str] = []
    for vendor in gpu_vendors.all_of_them():
        asked, kit = vendor.record, vendor.toolkit
        texts += (vendor.name, vendor.label, *vendor.modules, *vendor.runtimes)
        texts += (*vendor.nodes.shared, *asked.programs, *asked.variables, *asked.modules)
        texts += asked.words
        texts += kit.programs.values() if kit is not None else ()
    return frozenset(word for text in texts for word in re.findall("[a-z][a-z0-9]+", text.lower()))


@cache
def _counted() -> re.Pattern[str]:
    """What a vendor's modules and device nodes are called, by number."""
    vendors = gpu_vendors.all_of_them()
    names = {name for vendor in vendors for name in (vendor.name, *vendor.modules)}
    return re.compile(rf"(?:{'|'.join(map(re.escape, sorted(names)))})\d{{1,3}}")


def is_listed(word: str, *, of_kernel: bool = False) -> bool:
    """Whether programs write this word, in whatever case that they do.

    `of_kernel`: in a text of a kernel or a driver, where a name that people have is a product's.
    """
    small = word.lower()
    if small not in _words():
        return _counted().fullmatch(small) is not None
    return of_kernel or small not in _ALSO_NAMES or word == small
