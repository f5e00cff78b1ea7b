"""slurmctld's job completion log: lines as 24.11 writes them, and what a name can do to them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.slurm import completion_log

_REST = (
    "Partition=debug TimeLimit=UNLIMITED StartTime=2026-11-22T06:28:43 EndTime=2026-11-22T06:28:45 "
    "NodeList=lab NodeCnt=1 ProcCnt=1 WorkDir={folder} ReservationName= "
    "Tres=cpu=1,mem=2711M,node=1,billing=1 Account= QOS= WcKey= Cluster=unknown "
    "SubmitTime=2026-11-22T06:28:42 EligibleTime=2026-11-22T06:28:43 {array}"
    "DerivedExitCode=0:0 ExitCode={code} "
)


def line(
    name: str = "t", state: str = "COMPLETED", number: int = 6, *,
    array: str = "", code: str = "0:0", folder: str = "/lab/jobs/t", uid: int = 1000,
) -> str:  # fmt: skip
    head = f"JobId={number} UserId=me({uid}) GroupId=me(1000) Name={name} JobState={state} "
    return head + _REST.format(array=array, code=code, folder=folder)


def test_a_line() -> None:
    found = completion_log.parse(line(state="FAILED", code="3:0"))
    assert found is not None
    assert (found.id, found.name, found.user, found.uid) == ("6", "t", "me", 1000)
    assert (found.state, found.exit_code, found.signal) == ("FAILED", 3, None)
    assert found.folder == "/lab/jobs/t"
    assert found.started is not None
    assert found.ended == found.started + 2
    assert found.submitted == found.started - 1


def test_a_task_of_an_array_and_a_signal() -> None:
    found = completion_log.parse(
        line(array="ArrayJobId=5 ArrayTaskId=2 ", state="CANCELLED", code="0:15")
    )
    assert found is not None
    assert (found.id, found.number, found.task) == ("5_2", 5, 2)
    assert (found.exit_code, found.signal) == (0, 15)


def test_a_job_that_never_ran_has_no_times() -> None:
    found = completion_log.parse(
        line().replace("StartTime=2026-11-22T06:28:43", "StartTime=Unknown")
    )
    assert found is not None
    assert found.started is None


def test_one_that_slurm_refused() -> None:
    text = line(state="FAILED", code="0:1")
    found = completion_log.parse(text.replace("NodeList=lab", "NodeList=(null)"))
    assert found is not None
    assert (found.state, found.exit_code, found.signal) == ("REFUSED", None, None)
    ran = completion_log.parse(text)
    assert ran is not None
    assert (ran.state, ran.signal) == ("FAILED", 1)


def test_one_that_was_cancelled_in_the_queue_never_began() -> None:
    found = completion_log.parse(line(state="CANCELLED").replace("NodeList=lab", "NodeList=(null)"))
    assert found is not None
    assert found.started is None
    assert found.ended is not None


_PLAIN = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=40)


@given(_PLAIN)
def test_a_name_may_hold_anything_but_a_line_break(name: str) -> None:
    found = completion_log.parse(line(name))
    assert found is not None
    assert (found.name, found.state, found.number) == (name, "COMPLETED", 6)


def test_a_name_that_looks_like_the_rest_of_the_line() -> None:
    found = completion_log.parse(line("x JobState=FAILED Partition=p", "COMPLETED"))
    assert found is not None
    assert (found.name, found.state) == ("x JobState=FAILED Partition=p", "COMPLETED")


@pytest.mark.parametrize(
    "text", ["", "nonsense", "JobId=x UserId=me(1)", "JobId=6 UserId=me(1000)"]
)
def test_what_is_no_line(text: str) -> None:
    assert completion_log.parse(text) is None


@given(st.text(max_size=200))
def test_anything_can_be_read(text: str) -> None:
    completion_log.parse(text)


def test_the_newest_of_a_number_counts(tmp_path: Path) -> None:
    log = tmp_path / "jobs.log"
    tasks = [line(array=f"ArrayJobId=9 ArrayTaskId={task} ", number=20 + task) for task in (0, 1)]
    texts = [line("old"), "half a li", line("new"), *tasks]
    log.write_text("\n".join(texts) + "\n")
    assert [job.name for job in completion_log.find(str(log), 6)] == ["new"]
    assert [job.id for job in completion_log.find(str(log), 9)] == ["9_0", "9_1"]
    assert [job.id for job in completion_log.find(str(log), 9, 1)] == ["9_1"]
    assert completion_log.find(str(log), 7) == ()
    assert completion_log.find(str(tmp_path / "missing"), 6) == ()
    assert completion_log.find(None, 6) == ()


def test_many_are_found_in_one_reading(tmp_path: Path) -> None:
    log = tmp_path / "jobs.log"
    task = line(array="ArrayJobId=9 ArrayTaskId=0 ", number=20)
    texts = [line("old", number=6), line(number=7), line("JobId=8 x", number=60), task]
    log.write_text("\n".join([*texts, line("new", number=6)]) + "\n")
    found = completion_log.find_all(str(log), (6, 8, 9))
    assert {number: [job.name for job in jobs] for number, jobs in found.items()} == {
        6: ["new"],
        9: ["t"],
    }
    assert completion_log.find_all(str(log), (20,)) == {}  # a task of 9
    assert completion_log.find_all(str(log), ()) == {}


def test_the_log_of_the_configuration_in_force(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    assert completion_log.path(str(conf)) is None
    conf.write_text("JobCompType=jobcomp/filetxt\nJobCompLoc=/x/jobs.log\n")
    assert completion_log.path(str(conf)) == "/x/jobs.log"
    conf.write_text("JobCompType=jobcomp/script\nJobCompLoc=/x/jobs.sh\n")
    assert completion_log.path(str(conf)) is None


def test_a_log_that_has_grown_keeps_its_newer_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "jobs.log"
    owner = (os.getuid(), os.getgid())
    completion_log.trim(str(log), owner)
    assert not log.exists()
    text = "".join(line(number=number) + "\n" for number in range(20))
    log.write_text(text)
    completion_log.trim(str(log), owner)
    assert log.read_text() == text
    monkeypatch.setattr(completion_log, "MOST_BYTES", len(text) // 2)
    completion_log.trim(str(log), owner)
    kept = log.read_text()
    assert text.endswith(kept)
    assert 0 < len(kept) <= len(text) // 4
    found = [job.number for job in completion_log.newest_first(str(log))]
    assert found[0] == 19
    assert len(found) == kept.count("\n")
