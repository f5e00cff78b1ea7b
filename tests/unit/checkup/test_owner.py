"""Whose the project folder is, and which engine was named: what decides between two advices."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup import checkup
from dshpc_setup.engine.refusals import endpoint_elsewhere
from dshpc_setup.facts import Engine
from dshpc_setup.project.folder import Project
from tests.unit.engine.fake import FakeMachine


def test_a_folder_of_ours_has_no_other_owner(tmp_path: Path) -> None:
    mine = FakeMachine(uid=os.getuid())
    assert checkup._other_owner(mine, Project(tmp_path)) is None
    assert checkup._other_owner(mine, None) is None
    assert checkup._other_owner(mine, Project(tmp_path / "none")) is None


def test_that_of_another_user_has_his_name(tmp_path: Path) -> None:
    import pwd

    name = pwd.getpwuid(os.getuid()).pw_name
    assert checkup._other_owner(FakeMachine(uid=os.getuid() + 1), Project(tmp_path)) == name


@pytest.mark.parametrize(
    ("named", "host", "told"),
    [
        ("garbage", "garbage", "garbage"),
        ("10.0.0.4:2375", None, "10.0.0.4:2375"),
        ("tcp://10.0.0.4:2375", None, "tcp://10.0.0.4:2375"),
        ("unix:///var/run/docker.sock", None, None),
        ("", "docker", None),
    ],
)
def test_what_is_named_and_is_not_the_socket_here(
    named: str, host: str | None, told: str | None
) -> None:
    machine = FakeMachine(env={"DOCKER_HOST": named} if named else {})
    assert endpoint_elsewhere(machine, Engine("error", host=host)) == told
