"""`squeue --json` read into values, and jobs' numbers as people type them."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.slurm import job_states
from dshpc_setup.slurm.job_states import JobId, SlurmJob


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def item(**changes: Any) -> dict[str, Any]:
    """A running job with two GPUs, as 24.11.5 says it."""
    return {
        "job_id": 17, "array_job_id": number(0), "array_task_id": number(None),
        "array_task_string": "", "het_job_id": number(0), "name": "train", "user_name": "me",
        "user_id": os.getuid(),
        "job_state": ["RUNNING"], "state_reason": "None", "gres_detail": ["gpu:h100:2(IDX:0-1)"],
        "tres_per_node": "gres/gpu:h100:2", "tres_per_job": "", "submit_time": number(100),
        "start_time": number(110), "end_time": number(999), "time_limit": number(60),
        "exit_code": {"return_code": number(0), "signal": {"id": number(None), "name": ""}},
        "current_working_directory": "/lab", "standard_output": "/lab/slurm-17.out",
        "partition": "debug", "restart_cnt": 0, "dependency": "",
        **changes,
    }  # fmt: skip


def known(**changes: Any) -> SlurmJob:
    (job,) = job_states.parse(json.dumps({"jobs": [item(**changes)]}))
    return job


def test_a_running_job() -> None:
    job = known()
    assert (job.id, job.number, job.task, job.state) == ("17", 17, None, "RUNNING")
    assert (job.gres, job.asked) == ("gpu:h100:2(IDX:0-1)", "gres/gpu:h100:2")
    assert (job.submitted, job.started, job.ended) == (100.0, 110.0, None)
    assert (job.exit_code, job.signal, job.has_ended) == (None, None, False)


def test_one_that_has_ended_and_gives_its_node_back() -> None:
    ended = {"return_code": number(3), "signal": {"id": number(None)}}
    job = known(job_state=["FAILED", "COMPLETING"], exit_code=ended)
    assert (job.state, job.exit_code, job.ended, job.has_ended) == ("FAILED", 3, 999.0, True)
    killed = {"return_code": number(None), "signal": {"id": number(9)}}
    assert known(job_state=["FAILED"], exit_code=killed).signal == 9


def test_one_that_slurm_refused_did_not_end_by_a_signal() -> None:
    hup = {"return_code": number(None), "signal": {"id": number(1)}}
    job = known(job_state=["FAILED"], state_reason="BadConstraints", exit_code=hup, nodes="")
    assert (job.state, job.exit_code, job.signal, job.has_ended) == ("REFUSED", None, None, True)
    assert known(job_state=["FAILED"], exit_code=hup, nodes="lab").signal == 1


def test_a_queued_one_has_not_started() -> None:
    job = known(job_state=["PENDING"], start_time=number(500))
    assert (job.started, job.begins) == (None, 500.0)
    assert known(job_state=["PENDING", "REQUEUED"]).state == "REQUEUED"


def test_one_that_was_cancelled_in_the_queue_never_began() -> None:
    job = known(job_state=["CANCELLED"], nodes="", start_time=number(500))
    assert (job.started, job.ended) == (None, 999.0)
    assert known(job_state=["CANCELLED"], nodes="lab").started == 110.0


def test_numbers_of_arrays() -> None:
    task = known(job_id=19, array_job_id=number(17), array_task_id=number(2))
    assert (task.id, task.number, task.task) == ("17_2", 17, 2)
    waiting = known(array_job_id=number(17), array_task_string="3-5,9%2")
    assert (waiting.id, waiting.number, waiting.task) == ("17_[3-5,9%2]", 17, None)
    assert job_states.tasks(waiting.id) == 4
    assert job_states.tasks(task.id) == 1
    both = (task, waiting, known(job_id=18))
    assert job_states.of(JobId(17), both) == (task, waiting)
    assert job_states.of(JobId(17, 2), both) == (task,)
    assert job_states.of(JobId(17, 9), both) == (waiting,)
    assert job_states.of(JobId(17, 6), both) == ()
    steps = known(array_job_id=number(17), array_task_string="0-8:4,9,20-25:2%3")
    assert [at for at in range(30) if job_states.of(JobId(17, at), (steps,))] == [
        0,
        4,
        8,
        9,
        20,
        22,
        24,
    ]
    assert job_states.tasks("17_[1-3:0,::,-,5-1,7:]") == 1


def test_where_its_log_is() -> None:
    assert job_states.log_of(known()) == "/lab/slurm-17.out"
    assert job_states.log_of(known(standard_output="out/%x-%j%%.log")) == "/lab/out/train-17%.log"
    task = known(array_job_id=number(17), array_task_id=number(2), standard_output="/o/%A_%a")
    assert job_states.log_of(task) == "/o/17_2"
    assert (
        job_states.log_of(known(array_task_string="0-3", standard_output="/o/17_4294967294")) == ""
    )
    assert job_states.log_of(known(standard_output="")) == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": 1}', "nonsense", "[" * 5000])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        job_states.parse(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(item())), JSON, max_size=8))
def test_values_of_any_shape_are_read(changes: dict[str, Any]) -> None:
    job = known(**changes)
    assert job_states.tasks(job.id) >= 1
    job_states.log_of(job)


@pytest.mark.parametrize(
    ("text", "expected"), [("17", JobId(17)), ("17_2", JobId(17, 2)), ("017", JobId(17))]
)
def test_numbers_of_jobs(text: str, expected: JobId) -> None:
    assert job_states.parse_id(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "17_", "_2", "17_[1-3]", "17 2", "-1", "17\n", "٣", "1" * 11, "17;ls", "17+1"]
)
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(DshpcError) as caught:
        job_states.parse_id(text)
    assert caught.value.exit_code == 64
    assert caught.value.brief.isprintable()


@given(st.text(), st.integers(10, 50))
def test_what_people_wrote_moves_no_cursor(text: str, most: int) -> None:
    said = job_states.shown(text, most)
    assert said.isprintable()
    assert len(said) <= most


def test_what_has_ended_is_all_but_what_waits_or_is_there() -> None:
    """A state that is in neither would be waited for without an end."""
    lives = "COMPLETING CONFIGURING REQUEUED REQUEUE_HOLD SPECIAL_EXIT PENDING RUNNING SUSPENDED STOPPED"
    assert set(job_states.WORDS) - job_states.ENDED == set(lives.split())
    assert set(job_states.WORDS) >= job_states.ENDED
