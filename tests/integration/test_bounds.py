"""What would grow for ever has an end, and a limit that is met is told in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Outcome, as_user

pytestmark = pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")

UID = 4321


@pytest.fixture
def own(standard: Cluster) -> Path:
    folder = standard.work / "own"
    folder.mkdir(exist_ok=True)
    os.chown(folder, UID, UID)
    return folder


def sbatch(cwd: Path, *arguments: str) -> Outcome:
    return as_user(UID, "dshpc", "sbatch", "--hold", *arguments, "--wrap=true", cwd=cwd)


def test_the_log_of_the_container_is_rotated(standard: Cluster) -> None:
    log = standard.inspect()["HostConfig"]["LogConfig"]
    assert log == {"Type": "json-file", "Config": {"max-file": "5", "max-size": "10240k"}}


@pytest.mark.parametrize("array", ["0-10001", "10001", "5-20000:7%3", "1,3,12345"])
def test_an_array_that_is_too_large_is_told_with_the_setting(own: Path, array: str) -> None:
    said = sbatch(own, f"--array={array}")
    assert (said.code != 0, said.stdout) == (True, "")
    assert "task numbers of this cluster end at 10000" in said.stderr
    assert "dshpc config set array_limit" in said.stderr


def test_an_array_as_large_as_the_limit_is_taken(standard: Cluster, own: Path) -> None:
    said = sbatch(own, "--array=0-10000%1").good()
    assert said.stderr == ""
    standard.said("scancel", said.stdout.split()[-1])


def test_mail_that_nobody_sends_is_told_in_one_line(standard: Cluster, own: Path) -> None:
    said = sbatch(own, "--mail-type=END").good()
    assert said.stderr.count("\n") == 1
    assert "needs a mail program, which this cluster does not have" in said.stderr
    standard.said("scancel", said.stdout.split()[-1])
    none = sbatch(own, "--mail-type=NONE").good()
    assert none.stderr == ""
    standard.said("scancel", none.stdout.split()[-1])
    step = as_user(UID, "dshpc", "srun", "--mail-type=ALL", "echo", "ran", cwd=own).good()
    assert (step.stdout, step.stderr.count("mail program")) == ("ran\n", 1)


def test_a_setting_that_nobody_has_applied_is_told(standard: Cluster) -> None:
    file = standard.folder / "dshpc.yaml"
    assert not file.exists()
    file.write_text("clean_after: 3d\n")
    try:
        said = standard.dshpc("status").good().stdout
        assert (
            "clean_after is now 3d (dshpc.yaml:1:1), but the cluster still runs with 30d." in said
        )
    finally:
        file.unlink()
    assert "To apply it" not in standard.dshpc("status").good().stdout
