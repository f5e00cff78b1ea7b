"""An engine that did not answer: what the project's folder says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup import checkup
from dshpc_setup.facts import Engine, HostFacts
from dshpc_setup.project.folder import Project
from tests.unit.diagnose.known import known


@pytest.fixture
def facts() -> HostFacts:
    return known("vm-no-gpu").facts


def project(folder: Path, engine: str | None) -> Project:
    runtime = folder / ".dshpc" / "runtime.json"
    runtime.parent.mkdir()
    runtime.write_text(json.dumps({"container": "p-slurm", "work": str(folder), "engine": engine}))
    return Project(folder)


@pytest.mark.parametrize(
    ("engine", "state", "kind"),
    [("builtin", "timeout", "builtin"), ("podman", "timeout", None), (None, "timeout", None),
     ("builtin", "error", None)],
)  # fmt: skip
def test_a_silent_engine_is_the_projects(
    engine: str | None, state: str, kind: str | None, tmp_path: Path, facts: HostFacts
) -> None:
    asked = replace(facts, engine=Engine(state))  # type: ignore[arg-type]
    named = checkup._of_projects_engine(asked, project(tmp_path, engine))
    assert (named.engine.state, named.engine.kind) == (state, kind)


def test_without_a_project_it_stays_unknown(facts: HostFacts) -> None:
    asked = replace(facts, engine=Engine("timeout"))
    assert checkup._of_projects_engine(asked, None) == asked
