"""The step "render" of a run, and its files written."""

from __future__ import annotations

from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Change
from dshpc_setup.cluster import (
    own_files,
)
from dshpc_setup.cluster.owner import former_owner
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.recipe import Recipe, make_recipe
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.render import configuration, stanza
from dshpc_setup.settings import Settings
from dshpc_setup.setup import written
from dshpc_setup.setup.describe import (
    describe_changes,
)
from dshpc_setup.setup.run import Run


def render(
    run: Run,
    facts: HostFacts,
    settings: Settings,
    base: BaseImage | None,
    plan: ClusterPlan,
    proof: Passthrough,
) -> tuple[Recipe | None, tuple[Change, ...]]:
    with run.steps.step("render") as say:
        recipe = (
            make_recipe(
                run.machine,
                facts,
                settings,
                run.project,
                base,
                plan.gpu_type,
                dry_run=run.options.dry_run,
                renew=run.options.renew,
                say=run.reporter.progress,
            )
            if base is not None and not run.makes_whole_image
            else None
        )
        file = stanza.compose_file(
            run.project.folder,
            settings,
            facts,
            plan,
            proof,
            stanza.image_tag(settings, plan.gpu_type),
            recipe.for_compose(run.project.folder) if recipe else None,
            run.workers,
        )
        changes = written.compared(run.project, plan, stanza.text_of(file))
        run.inputs, run.memory_mib = configuration.inputs(plan, file), plan.real_memory_mib
        run.report.changes = apply.planned(changes)
        say(describe_changes(run.report.changes if run.options.dry_run else changes))
        if not run.options.dry_run:
            written.keep_hidden(run.project, settings)
            if file.rights.seccomp:
                written.keep_profile(run.project, file.rights.seccomp)
            written.let_compose_read(run.machine, run.project, facts, changes)
            if not run.project.manifest:
                # Nothing has to stay in force yet, and what was chosen is remembered
                write(run, settings, changes)
        return recipe, changes


def write(run: Run, settings: Settings, changes: tuple[Change, ...]) -> None:
    """Where something is in force, only once nothing can refuse it: `dshpc up` would apply it."""
    if run.is_written:
        return
    owner = former_owner(run.machine, settings) if run.options.take_over else None
    origin = written.Origin(
        run.inputs,
        run.flags,
        owner,
        run.memory_mib,
        engine=run.engine,
        env=run.machine.env,
    )
    made = written.write(run.project, settings, changes, origin)
    for before, now in zip(changes, made, strict=True):
        if before.action != now.action and now.action.startswith("kept-"):
            run.steps.note(f"{now.path} was edited while this ran: it stays as it is.")
    run.report.changes, run.is_written = made, True
    for each in own_files.of_project(run.project, settings):
        run.steps.note(each.sentence)
