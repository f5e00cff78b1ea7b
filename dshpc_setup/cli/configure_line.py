"""`configure-environment`: its command line, the run, the exit code.

The command is declared in setting_up.py, for its help and for what is wrong with a command line. A line of
known options, well formed, is read here without typer, whose import takes longer than to find that nothing
has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup import __version__
from dshpc_setup.cli import interrupt_code, print_json
from dshpc_setup.cli.configure import configure_here, print_diff, print_result
from dshpc_setup.cli.console import ConsoleReporter, is_interactive
from dshpc_setup.cli.plain_line import Options, read
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.settings import DECLARATIONS
from dshpc_setup.terminal.command_names import print_error

_PLACES = ("dir", "settings", "image_file", "machine")
_KNOWN = Options(
    {
        **{"--yes": "yes", "-y": "yes", "--json": "json", "--dry-run": "dry_run", "--diff": "diff"},
        **{"--no-build": "no_build", "--renew": "renew", "--no-start": "no_start"},
        **{"--take-over": "take_over", "--stop-jobs": "stop_jobs"},
        **{"--when-idle": "when_idle"},
    },
    {
        **{f"--{name.replace('_', '-')}": name for name in _PLACES},
        **{"--join": "join", "--node-name": "node_name"},
        **{each.flag: f"flag:{each.name}" for each in DECLARATIONS},
    },
)


@dataclass(frozen=True)
class Line:
    """The options as they stand on the command line; `flags`: each setting, None where it is not named."""

    yes: bool = False
    json: bool = False
    dir: Path | None = None
    settings: Path | None = None
    dry_run: bool = False
    diff: bool = False
    no_build: bool = False
    renew: bool = False
    image_file: Path | None = None
    no_start: bool = False
    take_over: bool = False
    stop_jobs: bool = False
    when_idle: bool = False
    machine: Path | None = None
    flags: Mapping[str, str | None] = field(default_factory=dict)
    join: str | None = None
    node_name: str | None = None


def parsed(arguments: Sequence[str]) -> Line | None:
    """The options where each is known and has what it needs; else None: ask typer."""
    read_line = read(arguments, _KNOWN)
    if read_line is None or read_line[1]:
        return None
    found = read_line[0]
    flags = {each.name: found.pop(f"flag:{each.name}", None) for each in DECLARATIONS}
    found.update({name: Path(found[name]) for name in _PLACES if name in found})
    return Line(**found, flags=flags)


def carry_out(line: Line) -> int:
    """Set up, tell, and give the exit code."""
    codes: list[int] = []
    try:
        run(line, codes.append)
    except KeyboardInterrupt:
        if not codes:
            raise
    return codes[-1]


def one_way(*, stop_jobs: bool, when_idle: bool) -> None:
    """Raises DshpcError (usage) where jobs are to be stopped and waited for."""
    if stop_jobs and when_idle:
        raise usage_error(
            "--stop-jobs and --when-idle contradict each other.",
            "The one stops running jobs, the other waits for them.",
            "Leave one of them out.",
        )


def run(line: Line, finish: Callable[[int], None]) -> None:
    """`finish` is given the exit code before it is told: Ctrl-C from then on changes nothing of it."""
    if line.renew and line.no_build:
        raise usage_error("--renew builds the image, and --no-build does not.", "", "Name one.")
    one_way(stop_jobs=line.stop_jobs, when_idle=line.when_idle)
    if line.node_name is not None and line.join is None:
        raise usage_error(
            "--node-name is for a machine that joins a cluster.", "", "Add --join TOKEN."
        )
    interactive = is_interactive()
    report = configure_here(
        ConsoleReporter(to_stderr=line.json, yes=line.yes, interactive=interactive),
        greeting=f"dsHPC setup {__version__}",
        folder=line.dir,
        flags=line.flags,
        settings_file=line.settings,
        dry_run=line.dry_run or line.diff,
        build=not line.no_build,
        renew=line.renew,
        image_file=line.image_file,
        start=not line.no_start,
        take_over=line.take_over,
        stop_jobs=line.stop_jobs,
        when_idle=line.when_idle,
        interactive=interactive,
        recorded=line.machine,
        join=line.join,
        node_name=line.node_name,
    )
    if report.error and report.error.exit_code == Exit.INTERRUPTED:
        report.error.exit_code = interrupt_code()
    finish(int(report.exit_code))
    if line.json:
        print_json(report.to_json())
    if line.diff:
        print_diff(report, sys.stderr if line.json else sys.stdout)
    if report.error:
        print_error(report.error, "configure-environment")
    elif not line.json:
        dry_run = line.dry_run or line.diff or line.machine is not None
        print_result(report, line.dir, dry_run=dry_run, started=not line.no_start, diff=line.diff)
