"""The launcher of jobs as a process of its own: what its program is told, it is told once. No engine.

Slurm tells all processes of a job, their process group, or the launcher alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.jobs.request import Request
from tests.integration.cluster import ROOT, wait_until

# It saves until it may end: for longer than the launcher waits before it hands a signal on
_SAVES = """
import os, signal, sys, time
def told(number, _):
    print(signal.Signals(number).name, flush=True)
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGUSR1, told)
print("begun", flush=True)
while not os.path.exists("end"):
    time.sleep(0.02)
sys.exit(9)
"""
_LAUNCH = "from dshpc_setup.jobs.launch import main; sys.exit(main())"
_NO_PROCESS = """
def refused(): raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = refused
"""
_TOLD_BEFORE = """
import time
spawn = os.posix_spawnp
def told(*arguments, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    pid = spawn(*arguments, **options)
    while b"begun" not in open("output.log", "rb").read():  # else it has no handler yet
        time.sleep(0.02)
    return pid
os.posix_spawnp = told
"""


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own = folder / ".job"
        own.mkdir()
        request = Request("command", "x", (sys.executable, "-c", _SAVES), str(folder))
        (own / "request.json").write_text(json.dumps(request.to_json()))
        self.log = folder / "output.log"
        self.child: subprocess.Popen[bytes] | None = None

    def start(self, before: str = "") -> Job:
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                [sys.executable, "-c", f"import os, signal, sys\n{before}\n{_LAUNCH}"],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(lambda: "begun" in self.told(), "its program runs")
        if not before:
            wait_until(lambda: len(_group(self.pid)) == 3, "whoever hears what all are told runs")
        return self

    def tell_all(self, number: int) -> None:
        """Until the launcher has seen that all were told: another one listens then."""
        before, count = _group(self.pid), self.told().count(signal.Signals(number).name)
        os.killpg(self.pid, number)
        self.hears(count + 1, signal.Signals(number).name)
        wait_until(lambda: len(_group(self.pid) - before) == 1, "the launcher has looked")

    def hears(self, count: int, name: str) -> None:
        wait_until(lambda: self.told().count(name) >= count, f"its program is told {name}")

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def told(self) -> list[str]:
        return self.log.read_text().split()

    def end(self) -> dict[str, Any]:
        """Its result, with nothing of it left, once its program may end."""
        assert self.child is not None
        (self.folder / "end").touch()
        assert self.child.wait(60) == 9, self.log.read_text()
        with pytest.raises(ProcessLookupError):
            os.killpg(self.pid, 0)
        found = json.loads((self.folder / ".job" / "result.json").read_text())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    found = Job(tmp_path)
    yield found
    if found.child is not None and found.child.poll() is None:
        os.killpg(found.pid, signal.SIGKILL)
        found.child.wait(60)


def test_what_all_are_told_is_not_told_again(job: Job) -> None:
    job.start()
    job.tell_all(signal.SIGTERM)
    assert job.end()["told_to_stop"] == "SIGTERM"
    assert job.told() == ["begun", "SIGTERM"]


def test_what_the_launcher_alone_is_told_is_handed_on(job: Job) -> None:
    job.start()
    os.kill(job.pid, signal.SIGTERM)
    job.hears(1, "SIGTERM")
    assert job.end()["told_to_stop"] == "SIGTERM"
    assert job.told() == ["begun", "SIGTERM"]


def test_one_after_the_other(job: Job) -> None:
    job.start()
    job.tell_all(signal.SIGUSR1)
    os.kill(job.pid, signal.SIGUSR1)
    job.hears(2, "SIGUSR1")
    job.tell_all(signal.SIGUSR1)
    job.tell_all(signal.SIGTERM)
    job.end()
    assert job.told() == ["begun", *["SIGUSR1"] * 3, "SIGTERM"]


def test_two_at_once_of_which_the_program_has_one(job: Job) -> None:
    job.start()
    os.kill(job.pid, signal.SIGUSR1)
    job.tell_all(signal.SIGTERM)
    job.hears(1, "SIGUSR1")
    job.end()
    assert sorted(job.told()) == ["SIGTERM", "SIGUSR1", "begun"]


@pytest.mark.parametrize("before", [_NO_PROCESS, _TOLD_BEFORE], ids=["refused", "before"])
def test_where_nobody_else_could_hear_it(job: Job, before: str) -> None:
    """No second process could be had; the signal came before the program was there."""
    job.start(before)
    if before == _NO_PROCESS:
        os.kill(job.pid, signal.SIGTERM)
    job.hears(1, "SIGTERM")
    job.end()
    assert job.told() == ["begun", "SIGTERM"]


def test_a_launcher_that_is_killed_leaves_its_program_alone(job: Job) -> None:
    assert job.start().child is not None
    os.kill(job.pid, signal.SIGKILL)
    wait_until(lambda: len(_group(job.pid)) == 1, "only its program is left")
    os.killpg(job.pid, signal.SIGKILL)


def _group(number: int) -> frozenset[str]:
    """The processes of a process group, without those that have ended."""
    argv = ["ps", "-eo", "pgid=,pid=,stat="]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    lines = [line.split() for line in done.stdout.splitlines()]
    return frozenset(
        pid for group, pid, state in lines if group == str(number) and not state.startswith("Z")
    )
