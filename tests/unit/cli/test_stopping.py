"""Ctrl-C while the cluster is at a submission."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from dshpc_setup.cli import job_request, stopping
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import State
from dshpc_setup.jobs.request import Request
from dshpc_setup.machine import CommandResult, handed_in

RUNTIME = {"docker": "docker", "container": "c", "work": "/w"}
ASKED = Request("command", "a", ("x",), "/w")
SUBMITTED = {"schema": "dshpc.job-submitted/1", "exit_code": 0, "job_id": "17"}
INTERRUPTED = DshpcError("The submission was interrupted.", "Taken back: job 17.", (), 130)


def test_the_first_signal_is_handed_on_and_the_second_ends_us() -> None:
    handed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    with handed_in.passed_on(lambda: handed.append(1), 30.0) as came:
        signal.raise_signal(signal.SIGINT)
        assert (came, handed) == ([signal.SIGINT], [1])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert handed == [1]
    assert signal.getsignal(signal.SIGINT) is before


def test_where_nothing_comes_of_it_the_time_ends_us() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with handed_in.passed_on(lambda: None, 0.05) as came:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
    assert came == [signal.SIGINT]
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_signal_that_our_caller_ignores_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handed_in.passed_on(lambda: pytest.fail("handed on"), 30.0) as came:
            signal.raise_signal(signal.SIGHUP)
        assert came == []
    finally:
        signal.signal(signal.SIGHUP, before)


class Docker:
    """A `docker exec` in whose midst Ctrl-C comes; `codes` are those of the deliveries."""

    def __init__(self, out: str, codes: tuple[int, ...] = (0,)) -> None:
        self.out, self.codes = out, list(codes)
        self.delivered = 0
        self.state: State = "present"

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        if argv[-1] == "TERM":
            self.delivered += 1
            return CommandResult(tuple(argv), "present", self.codes.pop(0), "", "", 1)
        signal.raise_signal(signal.SIGINT)
        return CommandResult(tuple(argv), self.state, 0, self.out, "", 1)


def interrupted(monkeypatch: pytest.MonkeyPatch, out: str, codes: tuple[int, ...] = (0,)) -> Docker:
    docker = Docker(out, codes)
    monkeypatch.setattr("dshpc_setup.machine.local.LocalMachine", lambda: docker)
    monkeypatch.setattr("time.sleep", lambda _: None)
    return docker


def test_what_was_taken_back_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(INTERRUPTED.to_object())
    docker = interrupted(monkeypatch, f"{text}\n", (3, 3, 0))
    with pytest.raises(DshpcError) as told:
        job_request.ask(RUNTIME, "submit", ASKED)
    assert told.value == INTERRUPTED
    assert docker.delivered == 3  # until something ran under the token


def test_what_has_ended_is_told_once() -> None:
    docker = Docker("", (4,))
    handed_in.deliver(docker, ["as-user"])  # type: ignore[arg-type]
    assert docker.delivered == 1


def test_a_job_that_was_submitted_all_the_same_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(monkeypatch, json.dumps(SUBMITTED) + "\n")
    with pytest.raises(DshpcError, match="too late: job 17 is submitted") as told:
        job_request.ask(RUNTIME, "submit", ASKED)
    assert told.value.exit_code == 130
    assert told.value.resolution == ("End it: dshpc job cancel 17",)


@pytest.mark.parametrize("out", ["", json.dumps({**SUBMITTED, "job_id": None}) + "\n"])
def test_where_nothing_was_submitted_it_is_an_interruption(
    out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, out)
    with pytest.raises(KeyboardInterrupt):
        job_request.ask(RUNTIME, "submit", ASKED)


def test_a_cluster_that_hangs_may_have_submitted_it_though_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    docker = interrupted(monkeypatch, "", (0, 0))
    docker.state = "timeout"
    with pytest.raises(job_request.UnansweredError, match="did not answer"):
        job_request.ask(RUNTIME, "submit", ASKED)


def test_jobs_of_a_workflow_that_ran_before_are_not_called_submitted() -> None:
    jobs = [{"job_id": "5", "action": "reused"}, {"job_id": "9", "action": "submitted"}]
    error = stopping.too_late({"jobs": jobs}, signal.SIGTERM)
    assert error is not None
    assert (error.brief, error.exit_code) == (
        "The interruption came too late: job 9 is submitted.",
        143,
    )
    assert stopping.too_late({"jobs": jobs[:1]}, signal.SIGTERM) is None
