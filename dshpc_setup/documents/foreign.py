"""JSON that others wrote: users, jobs, containers, other programs. It imports little: jobs load it.

Whatever stands there ends in a value within the limits or in a ValueError that names the one it meets:
tests/unit/test_foreign.py keeps `json.loads` out of the other modules.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False  # importing typing would cost more than all of the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import IO, Any

MOST_BYTES = 64 << 20  # of a program's answer; a user's own file has less, see jobs/limits.py
MOST_DEPTH = 64  # ours are at ten at most; Python's own recursion ends at some hundreds


class ForeignError(ValueError):
    """Why a text is not read."""


def value(
    text: str | bytes,
    *,
    most_bytes: int = MOST_BYTES,
    parse_int: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
    parse_constant: Callable[[str], Any] | None = None,
) -> Any:
    """The value of a JSON text; raises ValueError for what is none, or too large, or too deep."""
    if len(text) > most_bytes:
        raise ForeignError(f"it is larger than {most_bytes >> 20} MiB")
    too_deep = ForeignError(f"its lists and objects lie more than {MOST_DEPTH} deep in each other")
    try:
        found = json.loads(
            text, parse_int=parse_int, parse_float=parse_float, parse_constant=parse_constant
        )
    except RecursionError:
        raise too_deep from None
    if is_deeper(found, MOST_DEPTH):
        raise too_deep
    return found


def of_file(file: IO[Any], *, most_bytes: int = MOST_BYTES) -> Any:
    """The value of an open file, of which no more is read than is needed to know that it is too large."""
    return value(file.read(most_bytes + 1), most_bytes=most_bytes)


def is_deeper(found: Any, most: int) -> bool:
    """Whether more than so many lists and objects lie around some part of a JSON value."""
    level = [found] if isinstance(found, (dict, list)) else []
    for _ in range(most):
        if not level:
            return False
        level = [
            each
            for part in level
            for each in (part.values() if isinstance(part, dict) else part)
            if isinstance(each, (dict, list))
        ]
    return bool(level)
