"""Tokens that were given out: how long each is good, and for whom."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.join import tokens
from dshpc_setup.project.folder import Project

NOW = 1_700_000_000.0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / ".dshpc").mkdir()
    return Project(tmp_path)


def test_the_secret_is_in_no_file_and_the_file_is_the_owners_alone(project: Project) -> None:
    given, secret = tokens.made(project, NOW, 60.0, once=False)
    path = project.folder / tokens.FILE
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert tokens.known(project, given.id, secret) == given
    assert tokens.known(project, given.id, secret[:-1] + "x") is None
    assert tokens.known(project, "0" * 12, secret) is None


def test_once_is_once_and_the_same_machine_may_come_again(project: Project) -> None:
    given, _ = tokens.made(project, NOW, 60.0, once=True)
    assert tokens.use(project, given.id, "a", NOW + 1) is None
    assert tokens.use(project, given.id, "a", NOW + 2) is None
    assert tokens.use(project, given.id, "b", NOW + 3) == "used"
    (kept,) = tokens.read(project)
    assert kept.used_by == ("a",)
    assert not kept.lives(NOW + 3)


def test_without_it_any_number_until_its_end(project: Project) -> None:
    given, _ = tokens.made(project, NOW, 60.0, once=False)
    assert [tokens.use(project, given.id, name, NOW + 1) for name in "abc"] == [None] * 3
    assert tokens.use(project, given.id, "d", NOW + 60) == "expired"
    assert tokens.use(project, "0" * 12, "d", NOW) == "unknown"


def test_revoking_ends_those_that_live_and_is_told_apart(project: Project) -> None:
    old, _ = tokens.made(project, NOW - 100, 60.0, once=False)
    new, _ = tokens.made(project, NOW, 60.0, once=False)
    assert tokens.revoke(project, NOW) == (new.id,)
    assert tokens.revoke(project, NOW) == ()
    assert tokens.use(project, new.id, "a", NOW) == "revoked"
    assert tokens.use(project, old.id, "a", NOW) == "expired"


def test_those_that_ended_long_ago_are_forgotten(project: Project) -> None:
    tokens.made(project, NOW, 60.0, once=False)
    tokens.made(project, NOW + 30 * 86400, 60.0, once=False)
    assert len(tokens.read(project)) == 1


def test_a_damaged_file_is_no_empty_one(project: Project) -> None:
    tokens.made(project, NOW, 60.0, once=False)
    (project.folder / tokens.FILE).write_text("{}")
    with pytest.raises(DshpcError, match="cannot be read"):
        tokens.read(project)
