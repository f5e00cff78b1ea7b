"""Why a question about jobs failed: an older image, a cluster that was stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import job_trouble
from tests.unit.engine.fake import Answer, FakeMachine

ASK = "docker exec c dshpc-node job"
INSPECT = "docker inspect"


@pytest.fixture
def call(tmp_path: Path) -> execution.Call:
    return execution.Call(
        execution.NODE, ["job", "list"], {"container": "c", "work": str(tmp_path)}
    )


@pytest.mark.parametrize(
    ("said", "knows"),
    [
        ("There is no dshpc-node job ''.\n  Known: submit, check, list.\n", True),
        ("There is no dshpc-node job ''.\n  Known: submit, check.\n", False),
        ("There is no dshpc-node job ''.\n  Known: submit, listen.\n", False),
        ("There is no command 'job'.\nusage: dshpc-node start\n", False),
        ("Error response from daemon: away\n", True),
    ],
)
def test_an_image_that_is_older(call: execution.Call, said: str, knows: bool) -> None:
    machine = FakeMachine(commands={ASK: Answer(code=64, stderr=said)})
    assert job_trouble.knows(machine, call, "list") is knows
    assert machine.ran == [("docker", "exec", "c", "dshpc-node", "job", "")]


def described(status: str, started: str) -> Answer:
    running = status == "running"
    state = {"Running": running, "Status": status, "ExitCode": 0, "StartedAt": started}
    value = {
        "Id": "1", "Name": "/c", "Image": "sha256:1", "Created": "2026-01-01T00:00:00Z",
        "State": state, "Config": {"Labels": {}, "Image": "i"}, "HostConfig": {}, "Mounts": [],
    }  # fmt: skip
    return Answer(json.dumps([value]))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (described("running", "1970-01-01T00:00:59.9Z"), None),
        (described("exited", "1970-01-01T00:00:01Z"), "starts again when it starts, unless it had"),
        (Answer(code=1, stderr="Error: No such container: c"), "starts again when it starts"),
    ],
)
def test_a_cluster_that_was_stopped(
    call: execution.Call, answer: Answer, words: str | None
) -> None:
    error = job_trouble.stopped(FakeMachine(commands={INSPECT: answer}), call, 60.0, "7")
    if words is None:
        assert error is None
    else:
        assert error is not None
        assert words in error.brief


def report(*states: str) -> Answer:
    jobs = [{"state": state, "words": state.lower()} for state in states]
    return Answer(json.dumps({"schema": "dshpc.job-report/1", "jobs": jobs}))


@pytest.mark.parametrize(
    ("concluded", "shown", "words"),
    [
        (False, report("RUNNING"), "job 7 starts again now that it runs again."),
        (False, report("COMPLETED", "PENDING"), "job 7 starts again now that it runs again."),
        (False, report("FAILED"), "job 7 has ended: failed."),
        (True, report("PENDING"), "job 7 had run to its end by then, and does not run again."),
        (False, Answer(code=3, stderr="no answer"), "runs again, unless it had ended."),
        (False, Answer("[]"), "runs again, unless it had ended."),
    ],
)
def test_one_that_runs_again_says_what_it_does_with_the_job(
    call: execution.Call, concluded: bool, shown: Answer, words: str
) -> None:
    machine = FakeMachine(
        commands={
            INSPECT: described("running", "1970-01-01T00:01:01.123456789Z"),
            "docker exec c dshpc-node wait": Answer(),
            "docker exec c test": Answer(code=0 if concluded else 1),
            f"{ASK} show": shown,
        }
    )
    error = job_trouble.stopped(machine, call, 60.0, "7")
    assert error is not None
    assert error.brief.endswith(words)
