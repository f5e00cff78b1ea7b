"""The service longest-wait: what it asks of Slurm, and what it orders."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dshpc_setup.container import longest_wait
from dshpc_setup.jobs import availability
from dshpc_setup.slurm.longest_wait import FILE
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine
from tests.unit.jobs.offers import offer

CUT, NEXT = "\x1f", "\x1e"
AGO = timedelta(hours=2)
NODE = "lab|debug*|8|64000|gpu:h100:2|gpu:h100:1(IDX:0)|mixed|nvidia|NO|\n"


PATHS = Paths("/nowhere")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept is noted in a folder of the test's own."""
    note = tmp_path / "run/dshpc/longest_wait.json"
    note.parent.mkdir(parents=True)
    monkeypatch.setattr(f"{__name__}.PATHS", Paths(str(tmp_path)))
    return note


def look(machine: FakeMachine, longest_s: float) -> float:
    return longest_wait.look(machine, PATHS, longest_s)


def row(job: str, gpus: int, *, ago: timedelta = AGO, reservation: str = "(null)") -> str:
    since = (datetime.now() - ago).isoformat(timespec="seconds")  # noqa: DTZ005 -- as Slurm's times
    return (
        f"{job}|debug|Resources|cpu=1,mem=1000M,node=1|N/A|gres/gpu:h100:{gpus}|N/A|N/A|N/A|N/A|1|(null)|"
        f"(null)||ada|x|{since}|1|{reservation}|OK||N/A|\n"
    )


def reserved(name: str, left: timedelta = timedelta(minutes=2), nodes: str = "lab") -> str:
    ends = (datetime.now() + left).isoformat(timespec="seconds")  # noqa: DTZ005
    return f"ReservationName={name} StartTime=x EndTime={ends} Nodes={nodes} Users=-slurm\n"


def machine(
    queue: str, reservations: str = "", *, running: str = "", node: str = NODE
) -> FakeMachine:
    said = f"{queue}{NEXT}{node}{NEXT}".replace("|", CUT) + reservations
    set_ = {"set": True, "infinite": False, "number": 1}
    nodes = [{"name": "lab", "cpus": {"count": 1}, "memory": {"allocated": 1000}}]
    job = {
        "job_id": 1, "gres_detail": ["gpu:h100:1(IDX:0)"], "resv_name": running, "end_time": set_,
        "job_resources": {"nodes": {"allocation": nodes}},
    }  # fmt: skip
    return FakeMachine(
        commands={
            "sh -c squeue": Answer(said),
            "squeue --json": Answer(json.dumps({"jobs": [job]})),
            "scontrol": Answer(),
        }
    )


def ordered(of: FakeMachine) -> list[str]:
    return [" ".join(argv[1:]) for argv in of.ran if argv[0] == "scontrol"]


def test_nothing_is_asked_twice_where_nobody_has_waited_so_long() -> None:
    young = machine(row("7", 2, ago=timedelta(minutes=10)))
    assert 2990 < look(young, 3600) <= 3000
    assert len(young.ran) == 1


def test_who_has_waited_gets_a_reservation_that_ends_by_itself() -> None:
    here = machine(row("7", 2) + row("8", 1))
    assert look(here, 3600) < 1
    create, join = ordered(here)
    assert create.startswith("create reservation reservationname=longest_wait-7 nodes=lab ")
    assert "endtime=now+120" in create
    assert create.endswith("flags=FLEX,OVERLAP,IGNORE_JOBS,NO_HOLD_JOBS_AFTER")
    assert join == "update jobid=7 reservationname=longest_wait-7"


def test_what_is_so_already_is_left() -> None:
    here = machine(row("7", 2, reservation="longest_wait-7"), reserved("longest_wait-7"))
    look(here, 3600)
    assert ordered(here) == []


@pytest.mark.parametrize(
    "known",
    [reserved("longest_wait-7", timedelta(seconds=50)), reserved("longest_wait-7", nodes="a,lab")],
    ids=["ends soon", "other nodes"],  # a time in an id is another one in each process of xdist
)
def test_it_lasts_as_long_as_the_job_waits(known: str) -> None:
    here = machine(row("7", 2, reservation="longest_wait-7"), known)
    look(here, 3600)
    assert ordered(here) == ["update reservationname=longest_wait-7 nodes=lab endtime=now+120"]


def test_it_goes_with_the_job() -> None:
    """Also where that runs: it is taken out, as Slurm deletes none that a running job is in."""
    begun = machine(
        row("8", 1, reservation="longest_wait-beside-h100"),
        reserved("longest_wait-7") + reserved("longest_wait-beside-h100") + reserved("friday"),
        running="longest_wait-7",
    )
    look(begun, 3600)
    orders = ordered(begun)
    assert orders[:2] == ["update jobid=1 reservationname=", "update jobid=8 reservationname="]
    assert sorted(orders[2:]) == [
        "delete reservationname=longest_wait-7",
        "delete reservationname=longest_wait-beside-h100",
    ]


def test_of_an_array_the_first_task_comes_first() -> None:
    here = machine(row("7_[3-9]", 2))
    look(here, 3600)
    assert ordered(here)[1] == "update jobid=7_3 reservationname=longest_wait-7_3"
    here = machine(row("7_[3-9]", 1, reservation="longest_wait-x"))
    look(here, 3600)
    assert ordered(here) == ["update jobid=7_[3-9] reservationname="]


def test_what_is_kept_is_no_longer_called_free(here: Path) -> None:
    assert FILE == availability._KEPT
    look(machine(row("7", 2)), 3600)
    node = FakeMachine(
        files={FILE: here.read_text()}, commands={"squeue --json": Answer('{"jobs": []}')}
    )
    found = availability.ask(node, replace(offer("h100", "h100", "t4"), node="lab"))
    assert found is not None
    assert (found.used("h100"), found.used("t4")) == (2, 0)
    assert found.holders["h100"] == ("job 7, which comes first,",) * 2
    other = availability.ask(node, replace(offer("h100"), node="other"))
    assert other == availability.Availability()
    for text in ("", "{", "[]", '{"until": 1, "nodes": {"lab": {"h100": "7"}}}', '{"until": 9e99}'):
        node.files[FILE] = text
        asked = availability.ask(node, replace(offer("h100"), node="lab"))
        assert asked == availability.Availability()
    look(machine("", reserved("longest_wait-7")), 3600)
    assert not here.exists()


def test_a_controller_that_does_not_answer_is_asked_again() -> None:
    silent = FakeMachine(commands={"sh -c squeue": Answer("", 1, "slurm_load_jobs error")})
    assert 0 < look(silent, 3600) < 60
    assert len(silent.ran) == 1


def test_it_is_looked_again_at_the_latest_after_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        longest_wait.tend(machine(""), PATHS, 10**6)
        == longest_wait.tend(machine(""), PATHS, float("inf"))
        == 300
    )
    slept: list[float] = []
    answers = iter([0.5, 0.5, 4000.0])
    monkeypatch.setattr(longest_wait, "look", lambda *_: next(answers))
    monkeypatch.setattr(time, "sleep", slept.append)
    assert longest_wait.tend(machine(""), PATHS, 3600) == 300
    assert slept == [0.5, 0.5]
