"""All that one build of the image is made of and from, gathered before the compose file is written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from dshpc_setup.engine.images import debian_arch
from dshpc_setup.engine.site import gather_site
from dshpc_setup.environment.layer import prepare
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.build import build_args, choose_builder, compose_build
from dshpc_setup.image.context import Context, write_context
from dshpc_setup.machine import Machine
from dshpc_setup.project.folder import OWN, Project
from dshpc_setup.settings import Settings

_RENEWED = f"{OWN}/renewed.json"


@dataclass(frozen=True)
class Recipe:
    base: BaseImage
    context: Context
    args: Mapping[str, str]

    def for_compose(self, project: Path) -> dict[str, Any]:
        """The `build:` of the compose file: `docker compose build` makes the same image."""
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
    renew: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Recipe:
    """Write the build context and say what is built from it; a dry run leaves no file behind.

    `renew`: with the packages of today, which later runs keep to.
    """
    compose = facts.engine.compose
    # Compose 1 refuses build.secrets, and leaves a service without `build:` out of its builds
    without_secrets = compose is not None and compose.major < 2
    buildkit = not without_secrets and choose_builder(machine, facts) != "classic"
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
    context = replace(context, renewed=renewed(project, renew=renew, dry_run=dry_run))
    args = build_args(machine, facts, settings, base, gpu_type, context.renewed)
    return Recipe(base, context, args)


def renewed(project: Project, *, renew: bool, dry_run: bool) -> str:
    """The moment of the last `--renew` of the project; "" where there was none."""
    if not renew:
        return str(project.read_note(_RENEWED).get("at", ""))
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    if not dry_run:
        project.write_json(_RENEWED, {"at": now})
    return now
