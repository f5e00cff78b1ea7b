"""Limits that are lower than what is queued are refused while all goes on: Slurm would lose jobs."""

from __future__ import annotations

import pytest

from dshpc_setup.apply.apply import Change, Wanted
from dshpc_setup.cluster import queue_room
from dshpc_setup.errors import DshpcError
from dshpc_setup.project.folder import Project
from tests.unit.cluster.test_start import NEW, agree, changing, machine
from tests.unit.engine.fake import Answer, FakeMachine

ASKS = "docker exec p-slurm squeue -h -a -r -t all -O ArrayTaskID:|,State:|"
QUEUE = "N/A|RUNNING|\n0|COMPLETED|\n40|PENDING|\n7|PENDING|\n"


def said(conf: str, answer: Answer) -> str | None:
    try:
        queue_room.check(FakeMachine(commands={ASKS: answer}), "p-slurm", conf)
    except DshpcError as error:
        return error.resolution[0]
    return None


@pytest.mark.parametrize(
    ("conf", "advice"),
    [
        ("", None),  # Slurm's own
        ("MaxArraySize=41\nMaxJobCount=6\n", None),
        ("maxarraysize=40\n", "Allow more: dshpc config set array_limit 41"),
        ("MaxJobCount=5\n", "Allow more: dshpc config set job_limit 100"),
        ("MaxArraySize=10\nMaxArraySize=50\n", None),
        ("MaxArraySize=lots\n", None),
    ],
)
def test_limits_and_what_is_queued(conf: str, advice: str | None) -> None:
    assert said(conf, Answer(QUEUE)) == advice


@pytest.mark.parametrize("answer", [Answer(""), Answer(code=1), Answer(state="timeout")])
def test_where_nothing_is_queued_or_nobody_says(answer: Answer) -> None:
    assert said("MaxArraySize=1\nMaxJobCount=1\n", answer) is None


def test_a_run_refuses_before_anything_stops(project: Project) -> None:
    fake = machine(project, jobs=QUEUE)
    wanted = Wanted("MaxArraySize=10\n")
    changes = (*NEW, Change("config/slurm.conf", "updated", "", wanted, "config/slurm.conf"))
    with pytest.raises(DshpcError, match="has task 40"):
        agree(fake, project, changes)
    assert changing(fake) == []


def test_a_file_of_ones_own_is_looked_at_too(project: Project) -> None:
    fake = FakeMachine(commands={ASKS: Answer(QUEUE)})
    conf = project.folder / "config" / "slurm.conf"
    conf.parent.mkdir(exist_ok=True)
    conf.write_text("MaxArraySize=50\n")
    queue_room.check_folder(fake, "p-slurm", project)
    conf.write_text("# mine\nMaxArraySize=40\n")
    with pytest.raises(DshpcError, match="has task 40"):
        queue_room.check_folder(fake, "p-slurm", project)
    conf.unlink()
    queue_room.check_folder(fake, "p-slurm", project)
