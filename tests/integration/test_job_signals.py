"""The launcher of jobs as a process of its own: what its program is told, it is told once. No engine.

Slurm tells all processes of a job, their process group, or the launcher alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.jobs.request import Request
from tests.integration.cluster import ROOT, wait_until

# It saves for longer than the launcher waits before it hands a signal on
_SAVES = """
import signal, sys, time
def told(number, _):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGTERM:
        end[0] = end[0] or time.monotonic() + 0.9
end = [0.0]
signal.signal(signal.SIGTERM, told)
signal.signal(signal.SIGUSR1, told)
print("begun", flush=True)
while not end[0] or time.monotonic() < end[0]:
    time.sleep(0.02)
sys.exit(9)
"""
_LAUNCH = "from dshpc_setup.jobs.launch import main; sys.exit(main())"
_NO_PROCESS = """
def refused(): raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = refused
"""
_TOLD_BEFORE = """
spawn = os.posix_spawnp
def told(*arguments, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return spawn(*arguments, **options)
os.posix_spawnp = told
"""


class Job:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        own = folder / ".dshpc"
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
        wait_until(lambda: "begun" in self.told(), "its program runs", 20)
        return self

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def told(self) -> list[str]:
        return self.log.read_text().split()

    def end(self) -> dict[str, Any]:
        """Its result, with nothing of it left."""
        assert self.child is not None
        assert self.child.wait(20) == 9, self.log.read_text()
        with pytest.raises(ProcessLookupError):
            os.killpg(self.pid, 0)
        found = json.loads((self.folder / ".dshpc" / "result.json").read_text())
        assert isinstance(found, dict)
        return found


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    found = Job(tmp_path)
    yield found
    if found.child is not None and found.child.poll() is None:
        os.killpg(found.pid, signal.SIGKILL)
        found.child.wait(20)


@pytest.mark.parametrize("tell", [os.kill, os.killpg])
def test_what_all_are_told_and_what_the_launcher_alone_is_told(
    job: Job, tell: Callable[[int, int], None]
) -> None:
    job.start()
    tell(job.pid, signal.SIGTERM)
    assert job.end()["told_to_stop"] == "SIGTERM"
    assert job.told() == ["begun", "SIGTERM"]


def test_one_after_the_other(job: Job) -> None:
    job.start()
    for tell in (os.killpg, os.kill, os.killpg):
        tell(job.pid, signal.SIGUSR1)
        time.sleep(0.8)
    os.killpg(job.pid, signal.SIGTERM)
    job.end()
    assert job.told() == ["begun", *["SIGUSR1"] * 3, "SIGTERM"]


def test_two_at_once_of_which_the_program_has_one(job: Job) -> None:
    job.start()
    os.kill(job.pid, signal.SIGUSR1)
    os.killpg(job.pid, signal.SIGTERM)
    job.end()
    assert sorted(job.told()) == ["SIGTERM", "SIGUSR1", "begun"]


@pytest.mark.parametrize("before", [_NO_PROCESS, _TOLD_BEFORE], ids=["refused", "before"])
def test_where_nobody_else_could_hear_it(job: Job, before: str) -> None:
    """No second process could be had; the signal came before the program was there."""
    job.start(before)
    if before == _NO_PROCESS:
        os.kill(job.pid, signal.SIGTERM)
    job.end()
    assert job.told() == ["begun", "SIGTERM"]


def test_a_launcher_that_is_killed_leaves_its_program_alone(job: Job) -> None:
    assert job.start().child is not None
    os.kill(job.pid, signal.SIGKILL)
    wait_until(lambda: len(_group(job.pid)) == 1, "only its program is left", 20)
    os.killpg(job.pid, signal.SIGKILL)


def _group(number: int) -> list[str]:
    """The processes of a process group, without those that have ended."""
    done = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return [state for group, state in lines if group == str(number) and not state.startswith("Z")]
