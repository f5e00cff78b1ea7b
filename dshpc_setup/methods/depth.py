"""How deep lists and objects lie in each other: what is written out recursively must not be too deep."""

from __future__ import annotations

from typing import Any


def is_deeper(value: Any, most: int) -> bool:
    """Whether more than so many lists and objects lie around some part of a JSON value."""
    level = [value]
    for _ in range(most + 1):
        level = [each for part in level for each in _inner(part)]
    return bool(level)


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
