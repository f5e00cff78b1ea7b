"""On a node without the work folder: a place for a workspace, and nothing of it afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import carried
from dshpc_setup.slurm.paths import Paths

ME = os.getuid()


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path / "root"))
    os.makedirs(found.run)
    (tmp_path / "work").mkdir()
    assert carried.prepare(found, str(tmp_path / "work"), "lab7") == 0
    return found


def test_it_is_there_before_the_job_and_gone_behind_it(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / f"work/jobs/{ME}/train-1"
    assert carried.begin(paths, "17", ME, os.getgid(), str(folder))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".job/carried/17").exists()
    (folder / ".job/carried/17-0.go").write_text("")
    (folder / "deep/er").mkdir(parents=True)
    carried.end(paths, "17", ME, str(folder))
    assert not folder.exists()
    carried.end(paths, "17", ME, str(folder))


def test_it_goes_with_the_last_task_that_is_in_it(paths: Paths, tmp_path: Path) -> None:
    folder = tmp_path / f"work/jobs/{ME}/train-1"
    for job in ("17", "18", "17"):
        assert carried.begin(paths, job, ME, os.getgid(), str(folder))
    (folder / ".job/carried/17-0.list").write_text("")
    carried.end(paths, "17", ME, str(folder))
    assert sorted(os.listdir(folder / ".job/carried")) == ["18"]
    carried.end(paths, "18", ME, str(folder))
    assert not folder.exists()


def test_a_folder_that_nobody_carried_is_left_alone(paths: Paths, tmp_path: Path) -> None:
    """The work folder may have become the controller's since."""
    folder = tmp_path / f"work/jobs/{ME}/train-1"
    (folder / ".job").mkdir(parents=True)
    assert not carried.begin(paths, "17", ME, os.getgid(), str(folder))
    carried.end(paths, "17", ME, str(folder))
    assert os.listdir(folder / ".job") == []


def test_what_a_job_of_sbatch_leaves_in_an_old_workspace_stays(
    paths: Paths, tmp_path: Path
) -> None:
    """Nobody carries it: its log would be lost."""
    own = tmp_path / f"work/jobs/{ME}"
    for job, folder in (("17", own / "old-1"), ("18", own / "old-2")):
        assert carried.begin(paths, job, ME, os.getgid(), str(folder))
        (folder / "slurm-17.out").write_text("said\n")
    carried.end(paths, "17", ME, str(own / "old-1"))
    assert carried.prepare(paths, str(tmp_path / "work"), "lab7") == 0
    for folder in (own / "old-1", own / "old-2"):
        assert (folder / "slurm-17.out").read_text() == "said\n"
        assert os.listdir(folder / ".job/carried") == []
    # One that never began has an empty log; and what a launcher of ours has left was carried
    assert carried.begin(paths, "19", ME, os.getgid(), str(own / "new-1"))
    (own / "new-1/output.log").write_text("")
    carried.end(paths, "19", ME, str(own / "new-1"))
    assert carried.begin(paths, "20", ME, os.getgid(), str(own / "old-1"))
    (own / "old-1/.job/carried/20-0.pid").write_text("1")
    carried.end(paths, "20", ME, str(own / "old-1"))
    assert os.listdir(own) == ["old-2"]


def test_a_start_removes_environments_of_long_ago(paths: Paths, tmp_path: Path) -> None:
    own = tmp_path / f"work/jobs/{ME}/.envs"
    (own / "ab12").mkdir(parents=True)
    (own / "cd34").mkdir()
    (own / ".new-of-a-kill").mkdir()
    os.utime(own / "ab12", (1, 1))
    carried.prepare(paths, str(tmp_path / "work"), "lab7")
    assert os.listdir(own) == ["cd34"]


@pytest.mark.parametrize(
    "folder", ["/etc/jobs/{me}/x", "{work}/jobs/{other}/x", "{work}/jobs/{me}/../x", "{work}/jobs/{me}/x/y",
               "{work}/x", "{work}/jobs/{me}/.envs", "/"],
)  # fmt: skip
def test_it_makes_nothing_elsewhere(paths: Paths, tmp_path: Path, folder: str) -> None:
    named = folder.format(me=ME, other=ME + 1, work=tmp_path / "work")
    assert not carried.begin(paths, "17", ME, os.getgid(), named)
    carried.end(paths, "17", ME, named)
    assert os.listdir(tmp_path / "work") == []
    assert not carried.begin(paths, "../17", ME, os.getgid(), str(tmp_path / f"work/jobs/{ME}/x"))


def test_a_start_removes_what_had_no_end(paths: Paths, tmp_path: Path) -> None:
    own = tmp_path / f"work/jobs/{ME}"
    assert carried.begin(paths, "17", ME, os.getgid(), str(own / "lost-1"))
    (own / "mine-1/.job").mkdir(parents=True)
    (own / "here-1/.job/carried").mkdir(parents=True)  # of the controller's part
    (own / "here-1/.job/carried/17-0.go").write_text("")
    (own / "theirs-1/.job/carried").mkdir(parents=True)  # of another node that sees this folder
    (own / "theirs-1/.job/carried/18").write_text("lab8")
    assert carried.prepare(paths, str(tmp_path / "work"), "lab7") == 1
    assert sorted(os.listdir(own)) == ["here-1", "mine-1", "theirs-1"]


def test_without_a_place_to_come_to_nothing_is_made(tmp_path: Path) -> None:
    folder = f"{tmp_path}/jobs/{ME}/x"
    assert not carried.begin(Paths(str(tmp_path / "root")), "17", ME, os.getgid(), folder)
    assert os.listdir(tmp_path) == []
