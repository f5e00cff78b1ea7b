"""What stays on the engine of the last start is named, before another one begins with nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.cluster import last_engine
from dshpc_setup.cluster.compose_file import USED
from dshpc_setup.facts import Engine
from dshpc_setup.project.folder import Project
from tests.unit.engine.fake import Answer, FakeMachine

OLD = Engine("present", engine_id="a", host="unix:///var/run/docker.sock", context="default")
NEW = Engine("present", engine_id="b", host="unix:///run/user/1000/docker.sock", context="rootless")
VOLUME = '[{"Name": "lab-home", "Labels": {}}]'


def started(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (tmp_path / ".dshpc").mkdir()
    project.write_json(USED, {"container": "x"})
    return project


def said(project: Project, engine: Engine, *, volume: bool = False) -> str | None:
    answer = Answer(stdout=VOLUME) if volume else Answer(code=1, stderr="Error: No such volume: x")
    machine = FakeMachine(commands={"docker": answer})
    return last_engine.left_behind(machine, project, engine, "lab")


def test_another_engine_has_none_of_it(tmp_path: Path) -> None:
    project = started(tmp_path)
    last_engine.remember(project, OLD, "lab")
    told = said(project, NEW)
    assert told is not None
    assert "another engine" in told
    assert "unix:///var/run/docker.sock, docker context default" in told
    assert "lab-state, lab-key, lab-home" in told
    assert "docker -H unix:///var/run/docker.sock run --rm -v lab-home:" in told
    assert said(project, OLD) is None


def test_the_volumes_of_the_name_that_it_had(tmp_path: Path) -> None:
    project = started(tmp_path)
    last_engine.remember(project, OLD, "former")
    assert "former-home" in (said(project, NEW) or "")


@pytest.mark.parametrize(("host", "same"), [(OLD.host, True), (NEW.host, False)])
def test_an_engine_without_an_id_is_known_by_its_address(
    tmp_path: Path, host: str, same: bool
) -> None:
    project = started(tmp_path)
    last_engine.remember(project, Engine("present", host=OLD.host), "lab")
    assert (said(project, Engine("present", engine_id="c", host=host)) is None) == same


def test_where_no_engine_is_remembered(tmp_path: Path) -> None:
    """As a folder of an older version has it."""
    project = started(tmp_path)
    assert "no volume lab-home" in (said(project, NEW) or "")
    assert said(project, NEW, volume=True) is None


def test_a_cluster_that_was_never_started_or_is_gone_leaves_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / ".dshpc").mkdir()
    assert said(project, NEW) is None
    project.write_json(USED, {"container": "x"})
    last_engine.remember(project, OLD, "lab")
    last_engine.forget(project)
    assert said(project, NEW) is None
