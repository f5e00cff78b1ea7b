"""Pictures of jobs that belong together, as the places of an SVG: values in, places out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDE, HIGH = 168, 44  # of a box
_ACROSS, _DOWN = 56, 16  # between two
_LETTERS = 20
MOST = 200  # boxes; of more a table tells more
SIDE, ROW = 26, 30  # of a task, and how many in a row


@dataclass(frozen=True)
class Box:
    name: str
    short: str
    x: int
    y: int


@dataclass(frozen=True)
class Arrow:
    """From the job that is waited for; `ending` is how it has to end."""

    path: str
    ending: str


@dataclass(frozen=True)
class Graph:
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    width: int
    height: int


def graph(needs: Mapping[str, Sequence[tuple[str, str]]]) -> Graph:
    """Job -> (job that it waits for, its ending); each stands right of all that it waits for."""
    column: dict[str, int] = {}
    left = dict(needs)
    while (
        left
    ):  # a round for each column; what is no job of it, or waits for itself, counts as none
        ready = [
            name
            for name, each in left.items()
            if not any(other in left and other != name for other, _ in each)
        ] or list(left)
        for name in ready:
            before = [column[other] for other, _ in left[name] if other in column]
            column[name] = max(before, default=-1) + 1
        left = {name: each for name, each in left.items() if name not in column}
    rows: dict[int, int] = {}
    boxes: dict[str, Box] = {}
    for name in needs:
        at = column[name]
        row = rows.get(at, 0)
        rows[at] = row + 1
        x, y = at * (WIDE + _ACROSS), row * (HIGH + _DOWN)
        boxes[name] = Box(name, _short(name), x, y)
    arrows = [
        Arrow(_path(boxes[other], boxes[name]), ending)
        for name, each in needs.items()
        for other, ending in each
        if other in boxes and other != name
    ]
    width = max((each.x for each in boxes.values()), default=0) + WIDE
    height = max((each.y for each in boxes.values()), default=0) + HIGH
    return Graph(tuple(boxes.values()), tuple(arrows), width, height)


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


def _path(begin: Box, end: Box) -> str:
    x, y = begin.x + WIDE, begin.y + HIGH // 2
    to_x, to_y = end.x, end.y + HIGH // 2
    half = max(_ACROSS // 2, (to_x - x) // 2)
    return f"M{x} {y} C{x + half} {y} {to_x - half} {to_y} {to_x} {to_y}"


def place(index: int) -> tuple[int, int]:
    """Of the square of an array's task."""
    return index % ROW * SIDE, index // ROW * SIDE
