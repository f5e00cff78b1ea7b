"""The REST API in the container: its key, and its daemon's start."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dshpc_setup.container import rest
from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

ME = (os.geteuid(), os.getegid())


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    Path(found.rest_key).parent.mkdir(parents=True)
    return found


def test_a_key_is_made_once_and_is_for_slurms_user_alone(paths: Paths) -> None:
    rest.ensure_key(paths, ME)
    made = Path(paths.rest_key)
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert (made.stat().st_uid, made.stat().st_gid) == ME
    before = made.read_bytes()
    assert len(before) >= 32
    rest.ensure_key(paths, ME)
    assert made.read_bytes() == before


def test_a_key_that_others_could_know_is_refused_and_kept(paths: Paths, tmp_path: Path) -> None:
    made = Path(paths.rest_key)
    for spoil in ("mode", "short", "link", "folder"):
        rest.ensure_key(paths, ME)
        if spoil == "mode":
            made.chmod(0o640)
        elif spoil == "short":
            made.write_bytes(b"x" * 31)
        elif spoil == "link":
            made.rename(tmp_path / "elsewhere")
            made.symlink_to(tmp_path / "elsewhere")
        else:
            made.unlink()
            made.mkdir(0o700)
        with pytest.raises(DshpcError, match="not safe") as refused:
            rest.ensure_key(paths, ME)
        assert "rm " in str(refused.value.fixes)
        assert os.path.lexists(made), spoil
        made.rmdir() if spoil == "folder" else made.unlink()


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Possible data_parser plugins:\ndata_parser/v0.0.42\ndata_parser/v0.0.40\n", "v0.0.42"),
        ("data_parser/v0.0.9\ndata_parser/v0.0.42\ndata_parser/v0.0.100\n", "v0.0.100"),
        ("slurmrestd: fatal: no\n", None),
    ],
)
def test_the_newest_api_is_told_whatever_the_order(said: str, version: str | None) -> None:
    assert rest.version(FakeMachine(commands={"env": Answer(said)})) == version
