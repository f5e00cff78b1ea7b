"""Jobs that a TaskProlog ended: what Slurm's answer and a job's own output tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dshpc_setup.container import task_prolog
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

SAID = "slurmstepd: error: TaskProlog failed status=3\n"


def job(log: str, code: int = 3, number: int = 17) -> str:
    """As `scontrol -o show job` has it (24.11)."""
    return (
        f"JobId={number} JobName=a b UserId=ada(1000) JobState=FAILED Requeue=1 ExitCode={code}:0 "
        f"RunTime=0 Command=/w/x.sh WorkDir=/w StdErr={log} StdIn=/dev/null StdOut={log} Power=\n"
    )


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").write_text("TaskProlog=/opt/site/task.sh\n")
    return Paths(str(tmp_path))


def failed(paths: Paths, text: str) -> tuple[str, ...]:
    machine = FakeMachine(commands={"sh -c": Answer(text)})
    return task_prolog.failed(machine, paths, 5.0)


def test_a_job_that_it_ended_is_told_with_its_exit_code(tmp_path: Path, paths: Paths) -> None:
    (tmp_path / "a log").write_text("x" * 9000 + "\n" + SAID)
    assert failed(paths, job("/a log")) == ("17 (exit code 3)",)


def test_a_job_that_failed_by_itself_is_not(tmp_path: Path, paths: Paths) -> None:
    (tmp_path / "log").write_text(SAID)
    assert failed(paths, job("/log", code=1)) == (), "another code than Slurm's line says"
    (tmp_path / "own").write_text("it failed\n")
    os.symlink("log", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    for log in ("/own", "/link", "/pipe", "/no/such", "/"):
        assert failed(paths, job(log)) == ()


@pytest.mark.parametrize("line", ["", "TaskProlog=/usr/local/lib/dshpc/task-prolog"])
def test_nothing_is_asked_where_there_is_none_of_the_users(line: str, paths: Paths) -> None:
    Path(f"{paths.etc_slurm}/slurm.conf").write_text(f"{line}\n")
    machine = FakeMachine()
    assert task_prolog.failed(machine, paths, 5.0) == ()
    assert not machine.ran
