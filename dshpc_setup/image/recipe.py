"""All that one build of the image is made of and from, gathered before the compose file is written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dshpc_setup.environment.layer import prepare
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.build import build_args, choose_builder, compose_build
from dshpc_setup.image.client import debian_arch
from dshpc_setup.image.context import Context, write_context
from dshpc_setup.image.site import gather_site
from dshpc_setup.machine import Machine
from dshpc_setup.project import Project
from dshpc_setup.settings import Settings


@dataclass(frozen=True)
class Recipe:
    base: BaseImage
    context: Context
    args: Mapping[str, str]

    def for_compose(self, facts: HostFacts, project: Path) -> dict[str, Any] | None:
        """The `build:` of the compose file; None for compose v1, which refuses build.secrets."""
        compose = facts.engine.compose
        if compose is not None and compose.major < 2:
            return None
        return compose_build(self.context, self.base, self.args, project)


def make_recipe(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    project: Project,
    base: BaseImage,
    gpu_type: str,
    *,
    dry_run: bool,
    say: Callable[[str], None] = lambda _: None,
) -> Recipe:
    """Write the build context and say what is built from it; a dry run leaves no file behind."""
    buildkit = choose_builder(machine, facts) != "classic"
    site = gather_site(machine)
    folder = project.own / "build"
    arch = debian_arch(facts.engine.arch or facts.platform.arch or "")
    layer = prepare(machine, project, arch, site, fetch=not dry_run, say=say)
    if dry_run:
        with tempfile.TemporaryDirectory() as scratch:
            new = Path(scratch) / "build"
            context = write_context(new, buildkit=buildkit, site=site, layer=layer)
        context = replace(context, folder=folder)
    else:
        context = write_context(folder, buildkit=buildkit, site=site, layer=layer)
        project.give_to_owner(folder, context.secrets_folder)
    return Recipe(base, context, build_args(machine, facts, settings, base, gpu_type))
