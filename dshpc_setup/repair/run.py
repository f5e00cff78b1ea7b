"""`dshpc doctor --fix`: what will be done is shown, asked for, done, and looked at again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.engine.privilege import caller
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import Project
from dshpc_setup.repair.context import look_around, running
from dshpc_setup.repair.lock import only_run
from dshpc_setup.repair.model import NEED_THE_ENGINE, OF_THE_ENGINE, Repair
from dshpc_setup.repair.outcome import Done, Outcome, planned_lines
from dshpc_setup.repair.plan import plan
from dshpc_setup.repair.site import HeldProject, Site
from dshpc_setup.repair.work import do
from dshpc_setup.terminal.reporter import Reporter

Again = Callable[[], tuple[Finding, ...]]


@dataclass(frozen=True)
class RepairOptions:
    """`interactive`: somebody can be asked. `again` makes the same checks once more. `agrees`: to which
    repairs somebody has said yes before, in the place of a question for each.
    """

    reporter: Reporter
    again: Again
    dry_run: bool = False
    yes: bool = False
    interactive: bool = False
    strict: bool = False  # warnings count as errors
    agrees: Callable[[Repair], bool] | None = None


def repair_findings(
    machine: Machine,
    project: Project | None,
    known: CheckInput,
    findings: tuple[Finding, ...],
    how: RepairOptions,
) -> Outcome:
    """Fix what is safe to fix; raises DshpcError where another run fixes, or works in the folder.

    Nothing is changed by a dry run, nor where nobody can be asked and `yes` was not said.
    """
    here = look_around(machine, project, known, findings)
    site = Site(
        machine=machine,
        reporter=how.reporter,
        known=known,
        here=here,
        project=_held(machine, project) if here.folder else None,
        interactive=how.interactive,
        time=time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
    )
    found = plan(findings, known, here)
    found = replace(found, repairs=tuple(_with_loss(site, item) for item in found.repairs))
    told = Outcome(findings, (), found.not_safe, dry_run=how.dry_run, strict=how.strict)
    if how.dry_run:
        return replace(told, done=tuple(Done(item, "planned") for item in found.repairs))
    for line in planned_lines(found.repairs, found.not_safe):
        how.reporter.note(line)
    if not found.repairs:
        return told
    if not (how.yes or how.interactive or how.agrees):
        left = tuple(Done(item, "left-out", "nobody could be asked") for item in found.repairs)
        return replace(told, done=left, error=_nobody())
    with contextlib.ExitStack() as locks:
        locks.enter_context(only_run(machine))
        if project is not None and here.folder:
            locks.enter_context(project.lock())
        agrees = how.agrees or (lambda repair: site.reporter.ask(repair.question))
        done, interrupted = _all(site, found.repairs, agrees)
    return _looked_at_again(replace(told, done=done, interrupted=interrupted), how)


def _held(machine: Machine, project: Project | None) -> Project | None:
    """Files made under sudo belong to who called it."""
    if project is None:
        return None
    who = caller(machine)
    owner = project.owner or ((who.uid, who.gid) if who.via_sudo else None)
    return HeldProject(project.folder, owner, foreign=project.foreign)


def _with_loss(site: Site, repair: Repair) -> Repair:
    """With what stops, where something does."""
    if repair.stops == "nothing":
        return repair
    try:
        cluster = site.here.container if repair.stops == "cluster" else None
        words = running(site.machine, cluster).words()
    except DshpcError as error:
        words = f"what runs now could not be asked: {error.brief}"
    return replace(repair, loss=words)


def _all(
    site: Site, repairs: Sequence[Repair], agrees: Callable[[Repair], bool]
) -> tuple[tuple[Done, ...], bool]:
    """Each repair in its turn; what was done is told as well where Ctrl-C ends it."""
    done: list[Done] = []
    for repair in repairs:
        why = _blocked(repair, done)
        if why:
            done.append(Done(repair, "left-out", why))
            continue
        try:
            yes = agrees(repair)
        except KeyboardInterrupt:
            return _interrupted(done, repairs), True
        try:
            done.append(_one(site, repair) if yes else Done(repair, "declined", "not agreed to"))
        except KeyboardInterrupt:
            done.append(Done(repair, "interrupted", backups=_copies(site, repair)))
            return _interrupted(done, repairs), True
    return tuple(done), False


def _interrupted(done: Sequence[Done], repairs: Sequence[Repair]) -> tuple[Done, ...]:
    rest = repairs[len(done) :]
    return (*done, *(Done(item, "left-out", "it was interrupted before") for item in rest))


def _one(site: Site, repair: Repair) -> Done:
    started = site.machine.clock()
    error = None
    try:
        do(site, repair)
    except DshpcError as failed:
        error = failed
    ms = round((site.machine.clock() - started) * 1000, 1)
    copies = _copies(site, repair)
    return Done(repair, "failed" if error else "done", error=error, backups=copies, ms=ms)


def _copies(site: Site, repair: Repair) -> tuple[str, ...]:
    return tuple(site.backups[path] for path in repair.changes if path in site.backups)


def _blocked(repair: Repair, done: Sequence[Done]) -> str:
    """Why it makes no sense any more; "" where it does."""
    for item in done:
        if item.state == "done":
            continue
        engine_away = (
            item.state == "failed"
            and item.repair.kind in OF_THE_ENGINE
            and repair.kind in NEED_THE_ENGINE
        )
        if engine_away or item.repair.key in repair.after:
            return f"it comes after: {item.repair.does}"
    return ""


def _looked_at_again(outcome: Outcome, how: RepairOptions) -> Outcome:
    tried = any(item.state in ("done", "failed") for item in outcome.done)
    if outcome.interrupted or not tried:
        return outcome
    try:
        return replace(outcome, after=how.again())
    except DshpcError as error:
        return replace(outcome, error=error)
    except KeyboardInterrupt:
        return replace(outcome, interrupted=True)


def _nobody() -> DshpcError:
    return DshpcError(
        "Nothing was changed: there is no terminal to ask at.",
        "",
        ("To answer every question with yes: dshpc doctor --fix --yes",),
    )
