"""Linux's lists of numbers: "0-3,8,10-11"."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST = 1 << 16  # no machine has more CPUs; a damaged file must not fill the memory


def text(numbers: Iterable[int]) -> str:
    """The same, of numbers: {0, 1, 2, 3, 8} is "0-3,8"."""
    spans: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def parse(text: str | None) -> frozenset[int]:
    """The numbers named; what is not of the form "0-3,8" counts for nothing."""
    found: set[int] = set()
    for part in (text or "").strip().split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part, re.ASCII)
        if match is None:
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last < _MOST:
            found.update(range(first, last + 1))
    return frozenset(found)
