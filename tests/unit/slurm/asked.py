"""A made-up squeue: as many columns of each row as it is asked for."""

from __future__ import annotations

from collections.abc import Sequence


def rows(argv: Sequence[str], text: str) -> str:
    """Of lines `id|state|...|` those columns that `-O` of the call names, counted from the left."""
    if "-O" not in argv:
        return text
    wanted = len(argv[list(argv).index("-O") + 1].split(","))
    lines = (line.split("|") for line in text.split("\n"))
    return "\n".join(
        "|".join([*line[:wanted], ""]) if len(line) > wanted else "|".join(line) for line in lines
    )
