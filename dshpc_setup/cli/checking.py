"""`dshpc doctor`: what was asked for, what came of it, and where it goes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.check_selection import chosen
from dshpc_setup.cli.doctor_options import DoctorOptions as DoctorOptions
from dshpc_setup.diagnose import CheckInput, catalogue, diagnose
from dshpc_setup.diagnose.model import Check, Section
from dshpc_setup.diagnose.report import Report
from dshpc_setup.errors import Exit, usage_error
from dshpc_setup.facts import SECTIONS as FACTS
from dshpc_setup.facts import Section as Fact
from dshpc_setup.files.atomic import write_atomic

# The facts that the checks of a section are about
_ABOUT: dict[str, tuple[Fact, ...]] = {
    "host": ("platform", "cpu", "memory"),
    "gpu": ("gpus",),
    "driver": ("gpus",),
    "engine": ("docker",),
    "passthrough": ("gpus", "docker"),
    "slurm": ("docker",),
    "files": (),
}


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
    """All checks are made, for what they may explain; those that were asked for are reported.

    Without `checks` these are all. `recorded`: the machine is another than the one that we run on.
    """
    every = diagnose(known)
    checks = catalogue() if checks is None else checks
    wanted = {check.id for check in checks}
    about = {fact for check in checks for fact in _ABOUT[check.section]}
    return Report(
        tuple(finding for finding in every if finding.id in wanted),
        every,
        known.facts.unanswered([fact for fact in FACTS if fact in about]),
        asked.strict,
        notes=tuple(_notes(known, {check.section for check in checks}, recorded=recorded)),
    )


def _notes(known: CheckInput, sections: set[Section], *, recorded: bool) -> Iterator[str]:
    """What there is to be known of the whole, where sections are shown that it is about."""
    seen, cluster = known.observed, known.observed.cluster
    if known.facts.gpus.simulated or (cluster is not None and cluster.simulated):
        yield "The GPUs are SIMULATED: made up, no job computes on them."
    if cluster is not None or not sections & {"slurm", "files"}:
        return
    if recorded and seen.version is None:
        yield "Only a machine was recorded: of its cluster and its files nothing is known."
    elif recorded:
        yield "No cluster was set up where this was recorded."
    elif seen.project is None:
        yield "No cluster is set up in this folder or above it."
    else:
        yield f"No cluster is set up in {seen.project}."


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
