"""Curves as the points of an SVG: values in, places out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 600, 120
_MOST_POINTS = 240
_GAP = 4  # times as long between two samples as usual: nothing was sampled there


@dataclass(frozen=True)
class Curve:
    """`lines` are `points` of polylines, a new one behind each gap; `top` is the value at the upper edge."""

    lines: tuple[str, ...]
    top: float
    last: float | None


def curve(
    points: Sequence[tuple[float, float | None]], begin: float, end: float, top: float | None = None
) -> Curve:
    """Of (time, value), None where a value is not known; the scale ends at `top`, or above all values."""
    known = [(at, value) for at, value in points if value is not None and begin <= at <= end]
    highest = max((value for _, value in known), default=0.0)
    scale = max(top or 0.0, highest) or 1.0
    if not known or end <= begin:
        return Curve((), scale, None)
    thin = _thinned(known)
    usual = sorted(b[0] - a[0] for a, b in pairwise(thin))
    gap = _GAP * usual[len(usual) // 2] if usual else 0.0
    lines: list[list[str]] = [[]]
    before = thin[0][0]
    for at, value in thin:
        if at - before > gap > 0:
            lines.append([])
        before = at
        x = WIDTH * (at - begin) / (end - begin)
        lines[-1].append(f"{x:.1f},{HEIGHT - HEIGHT * value / scale:.1f}")
    return Curve(tuple(" ".join(line) for line in lines), scale, known[-1][1])


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Of many the highest of each stretch: a peak is what one looks for."""
    if len(points) <= _MOST_POINTS:
        return points
    step = -(-len(points) // _MOST_POINTS)
    parts = (points[at : at + step] for at in range(0, len(points), step))
    return [max(part, key=lambda point: point[1]) for part in parts]


@dataclass(frozen=True)
class Span:
    """Of a job along the same axis."""

    job: str
    x: float
    width: float


def spans(
    held: Sequence[tuple[float, Sequence[str]]], begin: float, end: float
) -> tuple[Span, ...]:
    """When each job was seen on it, from the first sample to the last."""
    seen: dict[str, tuple[float, float]] = {}
    for at, jobs in held:
        if begin <= at <= end:
            for job in jobs:
                seen[job] = (seen[job][0] if job in seen else at, at)
    return tuple(
        Span(
            job,
            round(WIDTH * (first - begin) / (end - begin), 1),
            round(max(2.0, WIDTH * (last - first) / (end - begin)), 1),
        )
        for job, (first, last) in seen.items()
    )
