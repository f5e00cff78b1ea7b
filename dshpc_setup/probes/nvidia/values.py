"""Single values of NVML's answer, each what it is said to be or None."""

from __future__ import annotations


def text(value: object) -> str | None:
    """A text that says something, without white space around it."""
    return value.strip() or None if isinstance(value, str) else None


def count(value: object) -> int | None:
    """A whole number of 0 or more."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return value if good else None  # type: ignore[return-value]


def switch(value: object) -> bool | None:
    """None where it is neither 0 nor 1."""
    number = count(value)
    return bool(number) if number in (0, 1) else None
