"""What a build is made from: it fits the compose that may repeat it, and a `--renew` is remembered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.facts import Compose
from dshpc_setup.image import recipe as recipe_module
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.recipe import make_recipe, renewed
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings
from tests.unit.image.fakes import FACTS, FakeMachine, ended

BASE = BaseImage("dshpc-base:trixie-amd64", "sha256:base", "local")


@pytest.mark.parametrize(
    ("compose", "secrets"),
    [
        (Compose("1.29.2", ("docker-compose",)), False),
        (Compose("2.26.1", ("docker", "compose")), True),
        (None, True),
    ],
)
def test_compose_1_builds_as_well(
    tmp_path: Path, compose: Compose | None, secrets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses build.secrets, and skips a service without a build part: "uses an image, skipping"."""
    monkeypatch.setattr(recipe_module, "gather_site", lambda _: SiteFiles())
    engine = replace(FACTS.engine, buildx="0.13.1", compose=compose)
    facts = replace(FACTS, engine=engine)
    machine = FakeMachine(
        replies={"/usr/bin/docker --version": [ended("Docker version 26.1.5, build x")]}
    )
    recipe = make_recipe(
        machine, facts, Settings(), Project(tmp_path), BASE, "nvidia", dry_run=True
    )
    found = recipe.for_compose(tmp_path)
    assert found["build"]["args"]["GPU_TYPE"] == "nvidia"
    assert bool(found["secrets"]) is secrets
    assert ("secrets" in found["build"]) is secrets


def test_a_renewal_is_kept_to(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.prepare()
    assert renewed(project, renew=False, dry_run=False) == ""
    assert renewed(project, renew=True, dry_run=True) != ""
    assert renewed(project, renew=False, dry_run=False) == "", "a dry run remembers nothing"
    moment = renewed(project, renew=True, dry_run=False)
    assert renewed(project, renew=False, dry_run=False) == moment
