"""`dshpc doctor`: what was asked for, what came of it, and where it goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from dshpc_setup.checkup import report as reports
from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.check_selection import chosen
from dshpc_setup.cli.doctor_options import DoctorOptions as DoctorOptions
from dshpc_setup.diagnose import CheckInput, catalogue
from dshpc_setup.diagnose.model import Check
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.files.atomic import write_atomic


def check_together(
    *, fix: bool, dry_run: bool, bundle: Path | None, yes: bool, machine: Path | None
) -> None:
    """Raises DshpcError for options that are of no use together."""
    if dry_run and not fix:
        raise usage_error("--dry-run is for --fix.", "", "Give both, or neither.")
    if yes and not fix and bundle is None:
        raise usage_error("--yes is for --fix and --bundle.", "", "Leave --yes out.")
    if machine is not None and fix:
        raise usage_error("A recorded machine cannot be repaired.", "", "Leave out --fix.")
    if machine is not None and bundle is not None:
        raise usage_error(
            "--bundle is about this machine.",
            f"--machine {machine} is recorded already.",
            "Send that one, or leave --machine out.",
        )


def checks_of(asked: DoctorOptions) -> tuple[Check, ...] | None:
    """The checks that are asked for; raises DshpcError where the options cannot be followed.

    To be called before the machine is looked at, which takes its time. None: all of them, which are
    imported while the machine answers.
    """
    if asked.junit is not None:
        _need_place(asked.junit)
    return chosen(catalogue(), asked.only, asked.skip) if asked.only or asked.skip else None


def _need_place(target: Path) -> None:
    """Raises DshpcError where --junit cannot be written."""
    if target == Path():
        raise usage_error("--junit names no file.", "", "Name one: --junit doctor.xml")
    folder = target.parent
    if target.is_dir():
        what = "It is a folder."
    elif not folder.is_dir():
        what = f"There is no folder {folder}."
    elif not os.access(folder, os.W_OK | os.X_OK):  # it is written beside, and put in its place
        what = f"You may not write into {folder}."
    else:
        return
    raise usage_error(f"--junit {target} cannot be written.", what, "Name another file.")


def report_of(
    asked: DoctorOptions,
    known: CheckInput,
    checks: Sequence[Check] | None,
    *,
    recorded: bool = False,
) -> Report:
    """As `checkup.report.of`, of what the options ask for."""
    return reports.of(known, checks, strict=asked.strict, recorded=recorded)


def show(asked: DoctorOptions, report: Report) -> int:
    """Write and print it; the exit code."""
    if asked.junit is not None:
        from dshpc_setup.cli.junit import document

        write_atomic(asked.junit, document(report.findings, strict=report.strict))
    if asked.json:
        print_json(report.to_json())
    else:
        from dshpc_setup.cli.doctor import lines
        from dshpc_setup.cli.terminal import ink

        put("\n".join([*lines(report, ink(), verbose=asked.verbose), ""]))
    return report.exit_code


def list_checks(asked: DoctorOptions) -> int:
    """Print what checks there are; no machine is asked."""
    checks = checks_of(asked) or catalogue()
    if asked.json:
        each = [{"id": it.id, "section": it.section, "title": it.title} for it in checks]
        print_json({"schema": "dshpc.checks/1", "exit_code": 0, "checks": each})
    else:
        put("".join(f"{check.id}  {check.section:<11}  {check.title}\n" for check in checks))
    return Exit.OK
