"""Which jobs get a process that carries their workspace, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from dshpc_setup.container.carriers import Carriers
from dshpc_setup.slurm.job_states import SlurmJob


@dataclass
class Fake:
    code: int | None = None
    terminated: int = 0

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.terminated += 1


def job(number: int, state: str = "RUNNING", restarts: int = 0) -> SlurmJob:
    return SlurmJob(str(number), own=number, state=state, restarts=restarts)


def test_each_run_of_a_job_has_one() -> None:
    made: list[tuple[int, int]] = []

    def start(each: SlurmJob) -> Fake:
        made.append((each.own, each.restarts))
        return Fake()

    mine = Carriers(start)
    for now in range(3):
        mine.look((job(7), job(8, "COMPLETING"), job(9, "SUSPENDED")), now)
    assert made == [(7, 0)]
    mine.look((job(7, restarts=1),), 4)
    assert made == [(7, 0), (7, 1)]


def test_one_that_ends_while_its_job_runs_is_started_again_a_bit_later() -> None:
    made: list[Fake] = []

    def start(_: SlurmJob) -> Fake:
        made.append(Fake())
        return made[-1]

    mine = Carriers(start)
    mine.look((job(7),), 0)
    made[0].code = 1
    mine.look((job(7),), 1)
    mine.look((job(7),), 3)
    assert len(made) == 1
    mine.look((job(7),), 7)
    assert len(made) == 2


def test_one_whose_job_is_gone_is_told_so_after_a_while_and_not_because_nobody_answers() -> None:
    made = Fake()
    mine = Carriers(lambda _: made)
    mine.look((job(7),), 0)
    mine.look((), 1)
    mine.look(None, 100)
    assert made.terminated == 0
    mine.look((job(7),), 101)
    mine.look((), 102)
    mine.look((), 120)
    assert made.terminated == 0
    mine.look((), 133)
    assert made.terminated == 1
    made.code = 0
    mine.look((), 134)
    assert mine.started == {}


def test_a_job_without_a_workspace_is_looked_at_once() -> None:
    seen: list[int] = []
    mine = Carriers(lambda each: seen.append(each.own))
    for now in range(20):
        mine.look((job(7),), now)
    assert seen == [7]
