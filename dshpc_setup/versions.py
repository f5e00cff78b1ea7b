"""Version numbers as they are compared: by their leading numbers, whatever follows these."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"v?(\d{1,9}(?:\.\d{1,9})*)")


def numbers(version: str | None) -> tuple[int, ...] | None:
    """ "v28.2.1-rc1" is (28, 2, 1); None where no number begins it."""
    found = _NUMBERS.match((version or "").strip())
    return tuple(int(part) for part in found[1].split(".")) if found else None


def at_least(version: str | None, least: str) -> bool:
    """Whether a version is `least` or newer; False where it is not known."""
    known, floor = numbers(version), numbers(least)
    if known is None or floor is None:
        return False
    size = max(len(known), len(floor))
    return _padded(known, size) >= _padded(floor, size)


def _padded(parts: tuple[int, ...], size: int) -> tuple[int, ...]:
    return parts + (0,) * (size - len(parts))
