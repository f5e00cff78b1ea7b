"""Jobs as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from dshpc_setup.jobs import view
from dshpc_setup.jobs.view import View
from dshpc_setup.slurm import job_states


def table(views: Sequence[View], now: float, me: str | None = None) -> str:
    """For people: one line for each, the columns as wide as they must be; whose they are, where they
    are not all one user's, or not all those of `me`."""
    users = {each.user for each in views if each.user}
    several = len(users) > 1 or (me is not None and not users <= {me})
    head = (
        "JOB",
        "NAME",
        *(("USER",) if several else ()),
        "STATE",
        "GPU",
        "TIME",
        "EXIT",
        "MEMORY",
    )
    rows = [head, *(_row(each, several, now) for each in views)]
    widths = [max(_width(row[at]) for row in rows) for at in range(len(head))]
    lines = []
    whys = ["", *(job_states.shown(each.reason or "", 300) for each in views)]
    for row, why in zip(rows, whys, strict=True):
        cells = [
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        lines.append("  ".join([*cells, why]).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    """Columns of a terminal: signs of East Asia take two, and marks above a letter none."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )


def _row(one: View, several: bool, now: float) -> tuple[str, ...]:
    seconds = one.seconds(now)
    return (
        job_states.shown(one.id, 40),
        job_states.shown(one.name, 30),
        *((job_states.shown(one.user or "?", 20),) if several else ()),
        job_states.shown(_state(one), 40),
        _gpus(one),
        "" if seconds is None else view.duration(seconds),
        "" if one.exit_code is None else str(one.exit_code),
        "" if one.max_rss_mib is None else f"{one.max_rss_mib} MiB",
    )  # fmt: skip


def _state(one: View) -> str:
    failed = one.state == "FAILED"
    return view.MEMORY.get(one.out_of_memory or "", one.words) if failed else one.words


def _gpus(one: View) -> str:
    """Which it has or had; of an ended one of which Slurm does not keep that, what it asked for."""
    if one.gpus or not one.is_over or one.started is None:
        return view.which(one.gpus)
    return job_states.shown((one.asked_gres or "").replace("gres/", ""), 40)
