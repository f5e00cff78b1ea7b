"""Waiting until no job runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup.cluster import idle, stopping
from dshpc_setup.cluster.idle import WhenIdle
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from tests.unit.engine.fake import FakeMachine, Listener

JOB = stopping.RunningJob("7", "ada", "train", "1:00", begins_anew=True)


class Cluster:
    """What is asked and ordered of one, in order; `jobs` that run, one answer each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *jobs: Any) -> None:
        self.jobs, self.orders, self.started = list(jobs), [], "a"  # type: ignore[var-annotated]
        self.machine = FakeMachine()
        monkeypatch.setattr(idle, "running_jobs", self._running)
        monkeypatch.setattr(stopping, "running_jobs", self._running)
        monkeypatch.setattr(idle, "_hold", lambda _m, _c, verb: self.orders.append(verb))
        monkeypatch.setattr(idle, "_started", lambda _m, _c: self.started)
        monkeypatch.setattr("dshpc_setup.cluster.idle.time.sleep", lambda _s: None)

    def _running(self, _machine: Machine, _container: str, _nodes: Any = None) -> Any:
        found = self.jobs.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found


def test_it_waits_holds_and_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, said = Cluster(monkeypatch, (JOB, JOB), (JOB,), ()), Listener()
    with WhenIdle(asked=True) as held:
        held.wait(cluster.machine, "c", said)
        held.wait(cluster.machine, "c", said)  # once is enough
        assert cluster.orders == ["begin"]
    assert cluster.orders == ["begin", "end"]
    assert "for 2 jobs: job 7 of ada (train), job 7 of" in said.heard[0]
    assert "for 1 job: job 7" in said.heard[1]


def test_what_is_said_changes_with_the_jobs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    later, said = replace(JOB, elapsed="1:02"), Listener()
    cluster = Cluster(monkeypatch, (JOB,), (later,), ())
    with WhenIdle(asked=True) as held:
        held.wait(cluster.machine, "c", said)
    assert said.heard[0] == said.heard[1]


def test_a_cluster_that_was_started_anew_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, ())
    with WhenIdle(asked=True) as held:
        held.wait(cluster.machine, "c", Listener())
        cluster.started = "b"
    assert cluster.orders == ["begin"]


@pytest.mark.parametrize("ends", [KeyboardInterrupt(), None], ids=["interrupted", "no answer"])
def test_what_ends_the_wait_leaves_all_as_it_was(
    monkeypatch: pytest.MonkeyPatch, ends: BaseException | None
) -> None:
    cluster = Cluster(monkeypatch, (JOB,), ends)
    with pytest.raises((KeyboardInterrupt, DshpcError)), WhenIdle(asked=True) as held:
        held.wait(cluster.machine, "c", Listener())
    assert cluster.orders == ["begin", "end"]


def may_stop(cluster: Cluster, answers: Listener, held: WhenIdle) -> None:
    stopping.may_stop(
        cluster.machine, "c", answers, agreed=False, what="restarted",
        command="dshpc restart", when_idle=held,
    )  # fmt: skip


def test_who_is_asked_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Waits(Listener):
        def ask(self, question: str, *, by_yes: bool = True) -> bool:
            super().ask(question, by_yes=by_yes)
            return "Wait until" in question

    cluster, said = Cluster(monkeypatch, (JOB,), (JOB,), ()), Waits()
    with WhenIdle() as held:
        may_stop(cluster, said, held)
    assert (len(said.questions), cluster.orders) == (2, ["begin", "end"])

    cluster = Cluster(monkeypatch, (JOB,))
    with pytest.raises(DshpcError) as caught, WhenIdle() as held:
        may_stop(cluster, Listener(answer=False), held)
    assert "dshpc restart --when-idle" in caught.value.resolution[0]
    assert (caught.value.exit_code, cluster.orders) == (Exit.ERROR, [])
