"""The steps "base" and "build" of a run: the image that is to run, pulled, made or found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dshpc_setup.engine.images import inspect
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage, ensure_base, find_base, find_image
from dshpc_setup.image.build import build
from dshpc_setup.image.recipe import Recipe
from dshpc_setup.machine import Machine
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.render import stanza
from dshpc_setup.settings import Settings
from dshpc_setup.setup.report import StepReporter
from dshpc_setup.setup.run import Run


def base(run: Run, facts: HostFacts, settings: Settings, ideal: ClusterPlan) -> BaseImage | None:
    with run.steps.step("base") as say:
        tag = stanza.image_tag(settings, ideal.gpu_type)
        if run.engine == "docker" and facts.engine.state == "present":
            run.has_image_of_file = _comes_as_file(run, tag)
        if run.makes_whole_image and not run.options.dry_run:
            say(_made_as_a_whole(run, facts, settings, tag, ideal.gpu_type))
            return find_image(run.machine, tag)
        if run.options.dry_run or not run.options.build:
            say("not needed for a dry run" if run.options.dry_run else "--no-build", True)
            there = facts.engine.state == "present" and run.options.replayed is None
            return find_base(run.machine, facts, settings) if there else None
        base = ensure_base(
            run.machine, facts, settings, run.reporter, interactive=run.options.interactive
        )
        origins = {"local": "here already", "pulled": "pulled", "made": "made here"}
        say(f"{base.ref}, {origins[base.origin]}")
        return base


def _comes_as_file(run: Run, tag: str) -> bool:
    """Whether Docker's image is that of a file, now or of an earlier run, and is not made here."""
    if run.options.image_file is not None:
        return True
    if run.options.renew or run.options.replayed is not None:
        return False
    from dshpc_setup.image import docker_image

    return docker_image.came(run.machine, run.project, tag)


def _made_as_a_whole(
    run: Run, facts: HostFacts, settings: Settings, tag: str, gpu_type: str
) -> str:
    """What was done, in words."""
    from dshpc_setup.setup import builtin_engine

    load: Callable[[Machine, str, Path, StepReporter], None] = builtin_engine.load_image
    keep = None
    if run.engine == "podman":
        from dshpc_setup.image import podman_image

        load, keep = podman_image.load, podman_image.keep
    if run.engine == "docker":
        from dshpc_setup.image import docker_image

        load = docker_image.load
    if (file := run.options.image_file) is not None:
        load(run.machine, tag, file, run.reporter)
        return f"{tag}, of {file}"
    if run.engine == "docker":
        return f"{tag}, as it came"
    if not run.options.build:
        return f"{tag} (--no-build)"
    from dshpc_setup.image import builtin_build

    made = builtin_build.build(
        run.machine,
        facts,
        settings,
        run.project,
        tag,
        gpu_type,
        run.reporter,
        renew=run.options.renew,
        keep=keep,
    )
    run.replaced.append(made.replaced)
    return f"{tag}, {made.size / 1e6:.0f} MB" + ("" if made.built else ", here already")


def build_image(
    run: Run, facts: HostFacts, settings: Settings, recipe: Recipe | None, plan: ClusterPlan
) -> str:
    """The id of the image to run."""
    with run.steps.step("build") as say:
        tag = stanza.image_tag(settings, plan.gpu_type)
        if not run.options.build or recipe is None:
            found = inspect(run.machine, tag)
            if found is None and run.options.start:
                raise DshpcError(
                    f"There is no image {tag} yet, and --no-build leaves out making it.",
                    "",
                    ("Run again without --no-build.",),
                )
            say("the image is there" if run.makes_whole_image else "--no-build", True)
            return found.id if found is not None else ""
        result = build(
            run.machine,
            facts,
            settings,
            recipe.base,
            recipe.context,
            tag,
            plan.gpu_type,
            run.reporter,
        )
        run.replaced.append(result.replaced)
        size = f"{result.size / 1e6:.0f} MB"
        say(f"{tag}, {size}" if result.built else f"{tag}, {size}, here already")
        return result.id
