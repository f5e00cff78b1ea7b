"""How the jobs of a workflow are asked for: the log once for all, and none that is over twice."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.jobs.allocated_gpus import Places
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.jobs.view import View
from dshpc_setup.machine import CommandResult
from dshpc_setup.slurm import completion_log
from dshpc_setup.workflows import inside
from dshpc_setup.workflows.state import Ran, State
from tests.unit.slurm.test_completion_log import line


class _Forgot:
    """A controller that knows no job any more."""

    def __init__(self) -> None:
        self.asked = 0

    def run(self, argv: Any, **_: Any) -> CommandResult:
        self.asked += 1
        return CommandResult(tuple(argv), "present", 0, json.dumps({"jobs": []}), "", 0.0)


def _ended(work: Path, count: int) -> tuple[JobReader, _Forgot, State]:
    """So many jobs that have ended, and one of which nothing is known."""
    jobs, lines = {}, []
    for number in range(1, count + 1):
        folder = work / "jobs" / str(os.getuid()) / str(number)
        (folder / ".job").mkdir(parents=True)
        (folder / ".job/job.json").write_text(json.dumps({"job_id": str(number)}))
        jobs[f"n{number}"] = Ran(str(number), str(folder))
        lines.append(line(number=number, folder=str(folder), uid=os.getuid()))
    log = work / "jobs.log"
    log.write_text("\n".join(lines) + "\n")
    controller = _Forgot()
    machine: Any = controller
    return (
        JobReader(machine, str(work), str(log), Places({})),
        controller,
        State("p", "f", 0.0, jobs),
    )


def _reads(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    reads: list[str | None] = []
    lines = completion_log._lines

    def counted(log: str | None) -> Any:
        reads.append(log)
        return lines(log)

    monkeypatch.setattr(completion_log, "_lines", counted)
    return reads


def test_the_log_is_read_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look, _, state = _ended(tmp_path, 5)
    reads = _reads(monkeypatch)
    found = inside._standings(look, state)
    assert [each.kind for each in found] == ["good"] * 5
    assert len(reads) == 1


def test_who_is_over_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, controller, state = _ended(tmp_path, 3)
    over: dict[str, View] = {}
    first = inside._standings(look, state, over=over)
    assert set(over) == {"n1", "n2", "n3"}
    reads = _reads(monkeypatch)
    assert inside._standings(look, state, over=over) == first
    assert (reads, controller.asked) == ([], 1)
    # One more, of which nothing is known, is asked for each time
    more = state.with_job("more", Ran("9", "/nowhere"))
    for _ in range(2):
        found = inside._standings(look, more, over=over)
        assert [each.kind for each in found] == ["good"] * 3 + ["bad"]
    assert (len(reads), controller.asked) == (2, 3)


def test_a_verb_of_another_version_is_refused_as_an_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"schema": "dshpc.workflow-request/1", "verb": "pause", "name": "p", "work": "/w"}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(asked)))
    assert inside.main([]) == 64
    told = json.loads(capsys.readouterr().out)["error"]
    assert told["brief"] == "A workflow is not asked to pause."
