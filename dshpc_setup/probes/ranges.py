"""Linux's lists of numbers: "0-3,8,10-11"."""

from __future__ import annotations

import re

_MOST = 1 << 16  # no machine has more CPUs; a damaged file must not fill the memory


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
