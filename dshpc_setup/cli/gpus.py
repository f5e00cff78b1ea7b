"""`dshpc gpus`: every GPU in a table, once or again and again."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from dshpc_setup import engine_door
from dshpc_setup.cli import interrupt_code, print_json, put
from dshpc_setup.cli.seen import seen_machine
from dshpc_setup.cluster.gpu_nodes import of_node, with_others
from dshpc_setup.cluster.gpu_watch import watch
from dshpc_setup.cluster.gpus import Card, GpusNow, Part, look
from dshpc_setup.errors import usage_error
from dshpc_setup.observed import idle
from dshpc_setup.problems import in_words
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.command_names import as_called
from dshpc_setup.terminal.sanitize import counted, harmless, plain

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

    from dshpc_setup.cluster.gpu_jobs import Job
    from dshpc_setup.project.folder import Project

INTERVAL_S = 2.0
_SHORTEST_S = 0.2
_WATCH_DEADLINE_S = 5.0
_UNLIMITED = 10_000  # where nobody sees the width: one line for each GPU
_UNKNOWN = "-"

# Heading, and how early it is left out where the width does not do: 0 never
_COLUMNS = (
    ("GPU", 0),
    ("Model", 1),
    ("Type", 0),
    ("Memory GiB", 0),
    ("Util", 2),
    ("Temp", 4),
    ("Power W", 3),
    ("Job", 0),
)
_MODEL, _JOB = 1, 7
_NARROW = 10  # columns that do for a model's name, in several lines
_GAP = 2


def show(
    project: Project | None,
    *,
    json_output: bool = False,
    watching: bool = False,
    interval: float | None = None,
    root: str = "/",
    machine: str | None = None,
    node: str | None = None,
) -> int:
    """Look, print, and give the exit code; raises DshpcError for what cannot be asked for."""
    _check(json_output, watching, interval)
    seen = seen_machine(root, machine, "")
    if machine is not None or root != "/":
        project = None  # what runs here says nothing about another machine
    if project is not None:
        seen = engine_door.of(seen, project.runtime())
    settings = Settings() if project is None else project.settings(seen.env)
    simulate = "" if project is None else settings.simulate
    if watching:
        looks = watch(seen, project, simulate, _WATCH_DEADLINE_S)
        typed = (_named(replace(each, settings=settings), node) for each in looks)
        return _watch(typed, INTERVAL_S if interval is None else interval)
    now = with_others(seen, project, lambda: look(seen, project, simulate))
    now = _named(replace(now, settings=settings), node)
    if json_output:
        print_json(now.to_json())
    else:
        _print(now)
    return now.exit_code


def _named(now: GpusNow, node: str | None) -> GpusNow:
    return now if node is None else of_node(now, node)


def _check(json_output: bool, watching: bool, interval: float | None) -> None:
    if json_output and watching:
        raise usage_error(
            "--watch and --json exclude each other.",
            "--json prints one object.",
            "For one look after the other: while sleep 2; do dshpc gpus --json; done",
        )
    if interval is None:
        return
    if not watching:
        raise usage_error("--interval is for --watch.", "", "dshpc gpus --watch --interval 5")
    if not (_SHORTEST_S <= interval < math.inf):
        raise usage_error(
            f"--interval {interval:g}: not a usable number of seconds.",
            "",
            f"Give seconds, {_SHORTEST_S:g} or more: --interval 2",
        )


def _watch(looks: Iterator[GpusNow], interval_s: float) -> int:
    """Until Ctrl-C, which is how it ends: no error."""
    try:
        if _is_terminal():
            _redraw(looks, interval_s)
        else:
            for now in looks:
                _print(now)
                put("\n")
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return interrupt_code()
    return 0


def _redraw(looks: Iterator[GpusNow], interval_s: float) -> None:
    from rich.live import Live

    console = _console()
    # No thread of its own: what is asked of the hardware is asked in forked processes
    with Live(console=console, auto_refresh=False) as live:
        for now in looks:
            live.update(_pages(now, console.width), refresh=True)
            time.sleep(interval_s)


def _console(file: IO[str] | None = None) -> Console:
    """That of the terminal; what it would print goes to `file` where one is given."""
    from rich.console import Console

    return Console(
        file=file,
        force_terminal=True if file is not None and _is_terminal() else None,
        highlight=False,
        markup=False,
        emoji=False,
        width=_width() or None,
    )


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _width() -> int:
    """Columns of the terminal; 0: rich finds it out."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    return 0 if _is_terminal() else _UNLIMITED


def _print(now: GpusNow) -> None:
    """Once, without the spaces that fill the table's lines up."""
    page = io.StringIO()
    console = _console(page)
    console.print(_pages(now, console.width))
    lines = [line.rstrip() for line in page.getvalue().splitlines()]
    put("\n".join(lines) + "\n")


def _pages(now: GpusNow, width: int) -> Group:
    """A page for each node, under its name where there are several."""
    from rich.console import Group
    from rich.text import Text

    if not now.others:
        return _page(now, width)
    return Group(
        *(
            part
            for each in (now, *now.others)
            for part in (Text(f"Node {plain(each.node or '?')}:", style="bold"), _page(each, width))
        )
    )


def _page(now: GpusNow, width: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[Text | Table] = [Text(harmless(_title(now)), style="bold")]
    if now.gpus.devices:
        parts.append(_table(now.cards(), width))
    parts += [Text(as_called(text)) for text in _notes(now)]
    return Group(*parts)


def _title(now: GpusNow) -> str:
    count, gpus = len(now.gpus.devices), now.gpus
    if not count:
        nothing = gpus.state in ("absent", "unsupported")
        title = "No GPU" if nothing else f"The GPUs cannot be listed ({gpus.state})"
    else:
        title = counted(count, "GPU")
    if gpus.simulated:
        title += ", SIMULATED: made up, nothing is measured and no job computes on them"
    elif count and gpus.driver_version:
        title += f", driver {gpus.driver_version}"
    if not count and gpus.detail:
        title += f": {gpus.detail}"
    if now.no_answer:
        title += ", no answer"
        title += f" for {now.age_s:.0f} s: these are the last values" if now.age_s else ""
    return title


def _notes(now: GpusNow) -> list[str]:
    """What the table does not say, a sentence each."""
    said = []
    if now.gpus.detail and now.gpus.devices:
        said.append(f"{now.gpus.detail[:1].upper()}{now.gpus.detail[1:]}.")
    for vendor, state in now.readings.states:
        if state in ("timeout", "denied", "error"):
            said.append(f"The {vendor} driver's values could not be read ({state}).")
    for index in now.readings.lost:
        said.append(
            f"GPU {index}: the driver listed it, and no longer tells of it. See why: dshpc doctor"
        )
    for card in now.cards():
        if card.device.problems:
            said.append(f"GPU {card.device.index}: {in_words(card.device.problems)}")
    cluster = now.cluster
    said += [f"{plain(idle.line(each))}." for each in (cluster.idle if cluster is not None else ())]
    if cluster is not None and cluster.state != "ready":
        detail = f". {cluster.detail}" if cluster.detail else ""
        said.append(f"Cluster {cluster.container}: {cluster.state}{detail}")
    elif cluster is not None and cluster.simulated not in (None, now.gpus.simulated):
        said.append("The running cluster has other GPUs than these: configure-environment")
    return said


def _table(cards: tuple[Card, ...], width: int) -> Table | Text:
    from rich.text import Text

    rows = [row for card in cards for row in _rows(card)]
    if (lines := fitting(rows, width)) is not None:
        text = Text(f"{lines[0]}\n", style="bold", no_wrap=True, end="")
        return text.append("\n".join([*lines[1:], ""]), style="not bold")
    from rich.table import Table

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    shown = columns(rows, width)
    for number in shown:
        table.add_column(_COLUMNS[number][0], width=shown[number], overflow="fold")
    for row in rows:
        table.add_row(*(Text(harmless(row[number])) for number in shown))
    return table


def fitting(rows: Sequence[tuple[str, ...]], width: int) -> list[str] | None:
    """The table's lines where each row stands in one of plain letters; None: something has to give way.

    A table of rich's takes half a millisecond for each row, and a cluster may have thousands.
    """
    whole = [tuple(name for name, _ in _COLUMNS), *(tuple(map(harmless, row)) for row in rows)]
    widths = [max(map(len, texts)) for texts in zip(*whole, strict=True)]
    if sum(widths) + _GAP * (len(widths) - 1) > width or not "".join(map("".join, whole)).isascii():
        return None
    gap = " " * _GAP
    return [gap.join(text.ljust(at) for text, at in zip(row, widths, strict=True)) for row in whole]


def columns(rows: list[tuple[str, ...]], width: int) -> dict[int, int]:
    """Column number -> width, of those that fit: what one can do without goes first.

    Models and jobs wrap, all else stands in one line; no word of a job is cut.
    """
    titles = [name for name, _ in _COLUMNS]
    whole = [max(map(len, texts)) for texts in zip(titles, *rows, strict=True)]
    least = list(whole)
    least[_MODEL] = min(whole[_MODEL], _NARROW)
    least[_JOB] = max(_longest_word(row[_JOB]) for row in [tuple(titles), *rows])
    shown = list(range(len(_COLUMNS)))
    spare = sorted((early, number) for number, (_, early) in enumerate(_COLUMNS) if early)
    while spare and _together(least, shown) > width:
        shown.remove(spare.pop()[1])
    widths = {number: least[number] for number in shown}
    left = max(0, width - _together(least, shown))
    for number, share in ((_MODEL, left // 2), (_JOB, left), (_MODEL, left)):
        if number in widths:
            more = min(share, left, whole[number] - widths[number])
            widths[number], left = widths[number] + more, left - more
    return widths


def _together(widths: list[int], shown: list[int]) -> int:
    return sum(widths[each] + _GAP for each in shown) - _GAP


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _rows(card: Card) -> list[tuple[str, ...]]:
    device, reading = card.device, card.reading
    name = device.name or device.vendor
    of_card = (
        str(device.index),
        f"{name}, part of {device.partition_of}" if device.partition_of else name,
        card.slurm_type or _UNKNOWN,
        _memory(reading.memory_used_mib, card.memory_total_mib),
        _with_unit(reading.utilization_percent, "%"),
        _with_unit(reading.temperature_c, " C"),
        _power(reading.power_w, reading.power_limit_w),
        "" if card.parts else _jobs(card.jobs, card.in_slurm),
    )
    return [of_card, *map(_part_row, card.parts)]


def _part_row(part: Part) -> tuple[str, ...]:
    own = part.instance.memory_mib
    total = own if own is not None else part.reading.memory_total_mib
    return (
        "",
        f"  MIG {part.instance.profile}",
        part.slurm_type or _UNKNOWN,
        _memory(part.reading.memory_used_mib, total),
        _UNKNOWN,
        _UNKNOWN,
        _UNKNOWN,
        _jobs(part.jobs, part.in_slurm),
    )


def _memory(used_mib: int | None, total_mib: int | None) -> str:
    if used_mib is None and total_mib is None:
        return _UNKNOWN
    used, total = (
        _UNKNOWN if mib is None else f"{mib / 1024:.1f}" for mib in (used_mib, total_mib)
    )
    return f"{used}/{total}"


def _power(now: float | None, limit: float | None) -> str:
    if now is None and limit is None:
        return _UNKNOWN
    return "/".join(_UNKNOWN if watts is None else f"{watts:.0f}" for watts in (now, limit))


def _with_unit(value: int | None, unit: str) -> str:
    return _UNKNOWN if value is None else f"{value}{unit}"


def _jobs(jobs: tuple[Job, ...] | None, in_slurm: bool) -> str:
    """ "17 anna train"; "free" where the cluster says that no job holds it."""
    if jobs is None or not in_slurm:
        return _UNKNOWN
    return "; ".join(_printable(f"{job.job_id} {job.user} {job.name}") for job in jobs) or "free"


def _printable(text: str) -> str:
    """A job's name is its user's: it must not command the terminal."""
    return plain(text).strip()
