"""What is said of a job that comes first after longest_wait, and of those behind it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshpc_setup.jobs import pending_reasons
from dshpc_setup.slurm.job_states import SlurmJob
from tests.unit.engine.fake import Answer, FakeMachine

FIRST = "ReservationName=longest_wait-7 EndTime=2026-11-26T10:54:51 Nodes=lab Users=-slurm\n"
BESIDE = "ReservationName=longest_wait-beside-t4 EndTime=2026-11-26T10:54:51 Nodes=lab\n"
BIG = SlurmJob(
    "7", asked="gres/gpu:h100:2", state="PENDING", reason="Resources", reservation="longest_wait-7"
)
SMALL = SlurmJob("8", asked="gres/gpu:h100:1", state="PENDING", reason="ReqNodeNotAvail")


def holder(number: int, held: str, *, limit: bool = False, on: str = "lab") -> dict[str, Any]:
    return {
        "job_id": number, "user_name": "ad\x1ba", "gres_detail": [held],
        "end_time": {"set": True, "infinite": False, "number": 1_900_000_000},
        "time_limit": {"set": limit, "infinite": not limit, "number": 9},
        "job_resources": {"nodes": {"allocation": [{"name": on}]}},
    }  # fmt: skip


def reasons(
    *jobs: SlurmJob, said: str = FIRST + BESIDE, holders: tuple[Any, ...] = ()
) -> dict[str, str]:
    machine = FakeMachine(
        commands={
            "sh -c squeue": Answer("", 1),
            "scontrol -o show reservation": Answer(said),
            "squeue --json": Answer(json.dumps({"jobs": holders})),
        }
    )
    return pending_reasons.reasons(machine, jobs)


def test_who_holds_what_the_first_waits_for() -> None:
    found = reasons(
        BIG,
        holders=(
            holder(1, "gpu:h100:1(IDX:0)"),
            holder(2, "gpu:t4:1(IDX:2)"),
            holder(3, "gpu:h100:1(IDX:0)", on="other"),
            holder(4, "gpu:h100:1(IDX:1)", limit=True),
        ),
    )["7"]
    assert found.startswith(
        "it comes first on lab after longest_wait: nothing begins there that takes"
    )
    assert "\x1b" not in found
    assert "1 (ad" in found
    assert "no time limit), 4 (" in found
    assert found.endswith("at the latest)")


def test_many_are_counted() -> None:
    found = reasons(BIG, holders=tuple(holder(n, "gpu:h100:1(IDX:0)") for n in range(10, 18)))["7"]
    assert found.count("no time limit") == 5
    assert found.endswith(", 3 more")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (FIRST, "job 7 comes first there, after longest_wait"),
        (FIRST + FIRST.replace("-7", "-9"), "jobs 7, 9 come first there, after longest_wait"),
        (BESIDE, "the node that it asks for is not available"),
        ("", "the node that it asks for is not available"),
    ],
)
def test_who_is_behind_them(said: str, told: str) -> None:
    assert reasons(SMALL, said=said) == {"8": told}


def test_others_ask_nothing_of_this() -> None:
    machine = FakeMachine(commands={"sh -c squeue": Answer("", 1)})
    job = SlurmJob("8", state="PENDING", reason="Priority")
    assert pending_reasons.reasons(machine, (job,)) == {"8": "other jobs are before it"}
    assert len(machine.ran) == 1
