"""What lies in users' folders is bounded: their files make nobody else wait, and each limit is named."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.jobs import allocated_gpus, limits, records
from dshpc_setup.jobs.limits import Limits
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.probes import ranges
from tests.unit.jobs.test_damaged import Forgot

_LINE = (
    "JobId={0} UserId=eve({3}) GroupId=eve(4251) Name=x JobState=CANCELLED Partition=debug "
    "TimeLimit=UNLIMITED StartTime={1} EndTime={1} NodeList=(null) NodeCnt=0 ProcCnt=1 WorkDir={2} "
    "ReservationName= Tres=cpu=1 Account= QOS= WcKey= Cluster=c SubmitTime={1} EligibleTime={1} "
    "ArrayJobId={0} DerivedExitCode=0:0 ExitCode=0:0"
)


def look(work: Path, log: str | None = None) -> JobReader:
    machine: Any = Forgot()
    return JobReader(machine, str(work), log, allocated_gpus.Places({}))


def workspace(work: Path, name: str, job: str) -> Path:
    own = work / "jobs" / str(os.getuid()) / name / ".job"
    own.mkdir(parents=True)
    (own / "job.json").write_text(job)
    return own.parent


def test_arrays_of_millions_hold_nobody_up(tmp_path: Path) -> None:
    """Twelve of them, cancelled in the queue, took root's list twenty seconds."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S")
    lines = []
    for number in range(100, 112):
        job = json.dumps({"job_id": number, "tasks": limits.MOST_TASKS})
        folder = workspace(tmp_path, f"x-{number}", job)
        lines.append(_LINE.format(number, now, folder, os.getuid()))
    log = tmp_path / "jobs.log"
    log.write_text("\n".join(lines) + "\n")
    began = time.monotonic()
    found = look(tmp_path, str(log)).all(whole=False)
    assert time.monotonic() - began < 1
    assert [each.id for each in found] == [f"{n}_[0-4000000]" for n in range(100, 112)]


def test_a_large_file_is_not_read_and_named(tmp_path: Path) -> None:
    large = json.dumps({"job_id": 7, "sbatch": ["x" * limits.MOST_BYTES]})
    folder = workspace(tmp_path, "large", large)
    workspace(tmp_path, "good", json.dumps({"job_id": 8}))
    looked = look(tmp_path)
    assert [each.id for each in looked.all(whole=True)] == ["8"]
    (line,) = looked.limits.lines()
    assert line == f"Not read: a file larger than 1 MiB, in {folder}/.job/job.json."


def test_a_file_at_the_limit_is_read(tmp_path: Path) -> None:
    text = json.dumps({"job_id": 7, "x": ""})
    whole = text.replace('""', '"' + "x" * (limits.MOST_BYTES - len(text)) + '"')
    folder = workspace(tmp_path, "a", whole)
    assert os.path.getsize(folder / ".job/job.json") == limits.MOST_BYTES
    assert records.of_folder(str(tmp_path), str(folder)) is not None


def test_more_results_and_workspaces_than_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST_RESULTS", 5)
    monkeypatch.setattr(records, "MOST_WORKSPACES", 3)
    for number in range(6):
        folder = workspace(tmp_path, f"w-{number}", json.dumps({"job_id": number + 1, "tasks": 9}))
        for task in range(9):
            (folder / f".job/result-{task}.json").write_text("{}")
    looked = look(tmp_path)
    found = looked.all(whole=True)
    assert len({each.number for each in found}) == 3
    assert len(found) <= 15
    assert [line.split(",")[0] for line in looked.limits.lines()] == [
        "Not read: workspaces",
        "Not read: results of an array with more than 100000 of them",
    ]


def test_time_is_a_limit_too(tmp_path: Path) -> None:
    for number in range(5):
        workspace(tmp_path, f"w-{number}", json.dumps({"job_id": number + 1}))
    ticks = iter(range(0, 1000, 2))
    looked = look(tmp_path)
    looked.limits = Limits(clock=lambda: float(next(ticks)))
    assert len(looked.all(whole=True)) < 5
    assert any("within 5 seconds" in line for line in looked.limits.lines())


def test_a_limit_is_named_without_what_commands_a_terminal() -> None:
    met = Limits()
    met.meet("bytes", "/data/\x1b[2J\u009b1m\u202e/job.json")
    met.meet("bytes", "/data/b")
    (line,) = met.lines()
    assert line.isprintable()
    assert line.endswith("and 1 more.")


@pytest.mark.parametrize(
    ("count", "numbers", "said"),
    [
        (0, (), ""),
        (3, (), "0-2"),
        (5, (1, 3), "0,2,4"),
        (4, (0, 1, 2, 3, 9), ""),
        (9, (4, 4), "0-3,5-8"),
    ],
)
def test_what_is_missing_of_a_count(count: int, numbers: tuple[int, ...], said: str) -> None:
    assert ranges.missing(count, numbers) == said
