"""Amounts as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size(count: int | None) -> str:
    """Of bytes: "1.4 GiB"; "?" where it is not known."""
    if count is None:
        return "?"
    unit = 0
    value = float(count)
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return (
        f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 10 else f"{value:.1f} {_UNITS[unit]}"
    )
