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


def missing(count: int, numbers: Iterable[int]) -> str:
    """Which of 0 to `count` - 1 are not among the numbers, as such a list: a count may be in the millions."""
    spans: list[tuple[int, int]] = []
    first = 0
    for number in (*sorted({each for each in numbers if 0 <= each < count}), count):
        if first < number:
            spans.append((first, number - 1))
        first = number + 1
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def in_status(status: str, name: str) -> str | None:
    """A list of /proc/PID/status: "Cpus_allowed_list", "Mems_allowed_list"."""
    match = re.search(rf"^{name}:\s*(\S+)", status, re.MULTILINE)
    return match[1] if match else None


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
