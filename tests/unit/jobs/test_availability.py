from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.jobs import availability
from dshpc_setup.jobs.availability import Availability
from dshpc_setup.slurm import holders
from tests.unit.engine.fake import Answer, FakeMachine
from tests.unit.jobs.offers import offer


def job(detail: list[str], end: object = None, limit: object = None) -> dict[str, Any]:
    return {"gres_detail": detail, "end_time": end, "time_limit": limit}


def free(jobs: list[dict[str, Any]], types: tuple[str, ...] = ()) -> Availability:
    return availability.of(holders.parse(json.dumps({"jobs": jobs})), types)


def test_who_holds_what_until_when() -> None:
    set_ = {"set": True, "infinite": False, "number": 1_800_000_000}
    found = free(
        [
            job(["gpu:h100:2(IDX:0-1),gpu:t4:1(IDX:2)"], set_),
            job(["gpu:h100:1(IDX:3)"], set_, {"infinite": True, "set": False, "number": 0}),
            job(["gpu:1(IDX:4)"], 1_700_000_000),
            job([]),
        ]
    )
    assert found.held == {
        "h100": (1.8e9, 1.8e9, None),
        "t4": (1.8e9,),
        "": (1.7e9,),
    }
    assert found.used("h100") == 3
    assert found.used("a100") == 0


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": 7}', '{"jobs": [7]}', "{"])
def test_what_is_no_answer_is_not_known(text: str) -> None:
    machine = FakeMachine(commands={"squeue --json": Answer(text)})
    assert availability.ask(machine, offer()) is None


@given(st.text())
def test_any_gres_text_is_read(text: str) -> None:
    assert free([job([text])]).used("") >= 0


def test_a_gpu_of_which_jobs_have_shares_is_not_free() -> None:
    ends = [{"set": True, "infinite": False, "number": 1_800_000_000 + more} for more in (0, 9)]
    jobs = [
        {**job(["shard:3(3/4,0/4,0/4)"], ends[0]), "job_id": 1},
        {**job(["shard:h100:1(1/4,0/4,0/4)"], ends[1]), "job_id": 2},
        {**job(["mps:25(0/100,0/100,25/100),gpu:h100:1(IDX:1)"]), "job_id": 3},
    ]
    found = free(jobs, ("h100", "h100", "t4"))
    assert found.held == {"h100": (None, 1_800_000_009.0), "t4": (None,)}
    assert found.holders == {"h100": ("job 3", "job 1", "job 2"), "t4": ("job 3",)}
    other = free(jobs[:1], ("h100", "h100"))
    assert other.held == {}  # of another configuration


def test_by_whom_is_kept() -> None:
    held = {**job(["gpu:gpu0:1(IDX:0),gpu:gpu1:0(IDX:)"]), "job_id": 12, "user_name": "ada"}
    found = free([held, {**job(["gpu:t4:1(IDX:2)"]), "job_id": 13}])
    assert found.holders == {"gpu0": ("job 12 of ada",), "gpu1": (), "t4": ("job 13",)}
    assert (found.used("gpu0"), found.used("gpu1")) == (1, 0)


def test_a_limit_that_is_not_set_yet_is_no_end() -> None:
    end = {"set": True, "infinite": False, "number": 1_800_000_000}
    for limit, held in (
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": True, "infinite": False, "number": 525_600}, None),
        (525_600, None),
        ({"set": True, "infinite": False, "number": 525_599}, 1.8e9),
        ({"set": True, "infinite": False, "number": 60}, 1.8e9),
    ):
        found = free([job(["gpu:t4:1(IDX:2)"], end, limit)])
        assert found.held == {"t4": (held,)}


def test_gpus_without_a_type_are_held_however_slurm_writes_them() -> None:
    for text in ("gpu:2(IDX:0-1)", "gpu:(null):2(IDX:0-1)"):
        found = free([job([f"{text},gpu:t4:1(IDX:2)"])])
        assert (found.used(""), found.used("t4")) == (2, 1), text
    for text in ("gpu:(null)2(IDX:0-1)", "gpu:(nul):2(IDX:0)", "xgpu:(null):2(IDX:0-1)"):
        found = free([job([text])])
        assert found.held == {}, text


@pytest.mark.parametrize(
    ("array", "task", "name"),
    [
        (120, {"set": True, "infinite": False, "number": 3}, "120_3"),
        ({"set": True, "infinite": False, "number": 120}, 0, "120_0"),
        (0, {"set": False, "infinite": False, "number": 0}, "123"),
        ({"set": True, "infinite": False, "number": 0}, None, "123"),
    ],
)
def test_a_task_of_an_array_has_the_name_that_people_know(
    array: object, task: object, name: str
) -> None:
    held = {**job(["gpu:t4:1(IDX:2)"]), "job_id": 123, "array_job_id": array, "array_task_id": task}
    found = free([held])
    assert found.holders == {"t4": (f"job {name}",)}


def test_a_gpu_is_held_from_the_begin_of_its_job_to_the_very_end() -> None:
    """A job that begins or ends holds its GPUs as one that runs does; one that waits holds none."""
    machine = FakeMachine(commands={"squeue": Answer('{"jobs": []}')})
    assert availability.ask(machine, offer("h100")) == availability.Availability()
    (argv,) = machine.ran
    states = set(argv[argv.index("-t") + 1].split(","))
    assert {"RUNNING", "SUSPENDED", "STOPPED", "CONFIGURING", "COMPLETING"} <= states
    assert "PENDING" not in states


def test_a_type_is_free_when_the_last_of_its_gpus_is() -> None:
    room = availability.Availability({"t4": (1.8e9, None), "h100": (7.0, 5.0)})
    assert [room.until(kind) for kind in ("t4", "h100", "a100")] == [float("inf"), 7.0, 0.0]
