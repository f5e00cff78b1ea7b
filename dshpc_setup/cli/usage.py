"""`dshpc usage`: GPU hours, held and really used."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Any

import typer

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    app,
    examples,
    finish,
    machine_of,
    needed_project,
)
from dshpc_setup.cli.options import NoMachine

_HEADS = {"user": "USER", "method": "METHOD", "gpu-type": "GPU TYPE", "week": "WEEK"}


@app.command("usage", rich_help_panel="Inspect", epilog=examples("dshpc usage --by week"))
def usage(
    *,
    by: Annotated[
        str, typer.Option("--by", metavar="WHAT", help="user, method, gpu-type or week.")
    ] = "user",
    json_output: Json = False,
    csv_output: Annotated[bool, typer.Option("--csv", help="Print CSV, in seconds.")] = False,
    dir: Dir = None,  # noqa: A002
    machine: NoMachine = None,  # noqa: ARG001
) -> None:
    """Show GPU hours of finished jobs: allocated, and actually used."""
    from dshpc_setup.cluster import use
    from dshpc_setup.errors import usage_error
    from dshpc_setup.usage import sums

    known = next((each for each in sums.BY if each == by), None)
    if known is None:
        raise usage_error(
            f"--by {by!r} is none of {', '.join(sums.BY)}.", "", "dshpc usage --by user"
        )
    if json_output and csv_output:
        raise usage_error("--json and --csv exclude each other.", "", "dshpc usage --csv")
    project = needed_project(dir)
    told = sums.told(use.ask(machine_of(project), project).sums, known)
    rows = told["rows"]
    if json_output:
        print_json(told)
    elif csv_output:
        put(_csv(rows, known))
    elif not rows:
        put("No job that held a GPU has ended yet.\n")
    else:
        put(_table(rows, known))
    finish(0)


def _csv(rows: list[dict[str, Any]], by: str) -> str:
    names = [by.replace("-", "_"), "jobs", "gpu_seconds_held", "gpu_seconds_measured",
             "gpu_seconds_used", "energy_j"]  # fmt: skip
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, names[0]: _cell(row[names[0]])} for row in rows)
    return text.getvalue()


def _cell(text: str) -> str:
    """A spreadsheet takes what begins so for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _table(rows: list[dict[str, Any]], by: str) -> str:
    from dshpc_setup.terminal.sanitize import plain

    key = by.replace("-", "_")
    lines = [(_HEADS[by], "JOBS", "GPU HOURS", "MEASURED", "USED", "ENERGY kWh")]
    for row in rows:
        energy = row["energy_j"]
        lines.append((
            plain(row[key])[:40] or "-",
            str(row["jobs"]),
            _hours(row["gpu_seconds_held"]),
            _hours(row["gpu_seconds_measured"]),
            _hours(row["gpu_seconds_used"]),
            "-" if energy is None else f"{energy / 3_600_000:.2f}",
        ))  # fmt: skip
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return "".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in
                  zip(line[1:], widths[1:], strict=True))]).rstrip() + "\n"
        for line in lines
    )  # fmt: skip


def _hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 3600:.2f}"
