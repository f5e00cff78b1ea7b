"""The commands about what is wrong: doctor, explain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dshpc_setup.cli import print_json
from dshpc_setup.cli.command_line import (
    Dir,
    Json,
    Yes,
    app,
    finish,
    machine_of,
    reporter,
    this_machine,
)
from dshpc_setup.cli.folders import found_project
from dshpc_setup.cli.options import Machine

_Fix = Annotated[bool, typer.Option("--fix", help="Fix what is safe to fix; asks before each.")]
_DryRun = Annotated[
    bool, typer.Option("--dry-run", help="With --fix: show what would be done; change nothing.")
]
_Bundle = Annotated[
    Path | None,
    typer.Option(
        "--bundle", metavar="FILE.tar.gz", help="Write a scrubbed report for a bug tracker."
    ),
]


@app.command("doctor", rich_help_panel="Inspect")
def doctor(
    *,
    json_output: Json = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show every check, with what was read.")
    ] = False,
    fix: _Fix = False,
    dry_run: _DryRun = False,
    bundle: _Bundle = None,
    yes: Yes = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="CHECK[,CHECK]", help="Run only these: sections, ids, DSH-NV-*."
        ),
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="CHECK[,CHECK]", help="Run all but these.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit's XML as well.")
    ] = None,
    list_checks: Annotated[
        bool, typer.Option("--list-checks", help="List the checks; run none.")
    ] = False,
    dir: Dir = None,  # noqa: A002
    machine: Machine = None,
) -> None:
    """Find what is wrong, and show why and how to fix it."""
    from dshpc_setup.cli import checking

    asked = checking.DoctorOptions(
        json_output, verbose, strict, junit, tuple(only or ()), tuple(skip or ())
    )
    checking.check_together(fix=fix, dry_run=dry_run, bundle=bundle, yes=yes, machine=machine)
    if list_checks:
        finish(checking.list_checks(asked))
        return
    if not fix and bundle is None:
        from dshpc_setup.cli.doctor_line import Line, look

        finish(look(Line(asked, dir, machine)))
        return
    checks = checking.checks_of(asked)
    from dshpc_setup.checkup import examine

    project = found_project(dir)
    here = this_machine() if project is None else machine_of(project)
    if bundle is not None:
        from dshpc_setup.bundle import writing

        writing.need_place(bundle, reporter(yes))
    known = examine(here, project)
    report = checking.report_of(asked, known, checks)
    if not (fix and json_output):
        finish(checking.show(asked, report))
    if bundle is not None:
        from dshpc_setup.cli.reporting import write_report

        write_report(here, project, (known, report.every), bundle, reporter(yes))
    if not fix:
        return
    from dshpc_setup.cli.repair import exit_code, print_outcome, run

    done = run(
        here,
        project,
        known,
        report.findings,
        reporter(yes),
        again=lambda: checking.report_of(asked, examine(here, project), checks).findings,
        dry_run=dry_run,
        yes=yes,
        strict=strict,
    )
    finish(exit_code(done))
    if json_output:
        print_json(done.to_json())
    else:
        print_outcome(done)


@app.command("explain", rich_help_panel="Inspect")
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID | WORDS | -]",
            help="DSH-NV-013, nv-13, or what a program said: out of memory; - reads it. All without it.",
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Explain a finding of doctor: what it means, how it is detected, how to fix it."""
    from dshpc_setup.cli.explaining import explain as show

    finish(show(words or (), json=json_output))
