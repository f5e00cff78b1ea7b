"""`dshpc node remove`: what is refused before anything is asked of an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.project.folder import Project
from dshpc_setup.setup import node_removal
from dshpc_setup.setup.run import Options
from tests.unit.engine.fake import FakeMachine


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.prepare()
    runtime = {"container": "dshpc-slurm", "work": "/w", "prefix": "dshpc"}
    made.write_json(".dshpc/runtime.json", runtime)
    return made


def refused(project: Project, name: str, **env: str) -> DshpcError:
    machine = FakeMachine(env=env)  # which knows no command
    with pytest.raises(DshpcError) as told:
        node_removal.remove(machine, project, name, cast("Any", None), Options())
    assert machine.ran == []
    assert told.value.exit_code == Exit.USAGE
    return told.value


def test_the_controllers_own_node_stays(project: Project) -> None:
    error = refused(project, "dshpc", DSHPC_NODES="2")
    assert "is the controller's own" in error.brief
    assert "Or remove the whole cluster: dshpc destroy" in error.resolution


def test_what_the_environment_says_would_bring_it_back(project: Project) -> None:
    error = refused(project, "dshpc-2", DSHPC_NODES="3")
    assert "DSHPC_NODES says which nodes there are, and would bring dshpc-2 back." in error.brief
    assert project.remembered == {}
