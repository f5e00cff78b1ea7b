"""Starts what carries a job's workspace to nodes that have not the work folder: the service carry.

It runs on the controller's machine, and knows nothing: each job that runs on such a node gets a process of
its user's (jobs/carrying.py), which ends with it. Killed at any moment, it finds them running or starts them.
"""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from dshpc_setup.container import nodes
from dshpc_setup.jobs import carrying, rights
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.job_states import SlurmJob
from dshpc_setup.slurm.paths import Paths

_ASK_S = 30.0
_LOOK_S = 1.0
_NODES_S = 15.0  # as often as offers of other machines are collected
_AGAIN_S = 5.0  # of one that ended while its job runs
_GONE_S = 30.0  # the job is gone, and its carrier is not
_COLUMNS = "JobID State BatchFlag RestartCnt ArrayJobID ArrayTaskID UserID NodeList WorkDir"
_THERE = "RUNNING,COMPLETING,SUSPENDED,STOPPED"
_Run = tuple[int, int]  # a job's own number, and which run of it


def tend(machine: Machine, paths: Paths) -> None:
    """For ever."""
    there: tuple[str, ...] = ()
    looked = float("-inf")
    mine = Carriers(lambda job: _started(job, there))
    while True:
        now = time.monotonic()
        if now - looked >= _NODES_S:
            there, looked = carriers(paths), now
        if there or mine.started:
            jobs = Slurm(machine).rows(_COLUMNS, _THERE, on=there, deadline_s=_ASK_S).value
            mine.look(jobs if there else (), time.monotonic())
        time.sleep(_LOOK_S if there else _NODES_S)


class Process(Protocol):
    """Of subprocess.Popen."""

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...


class Carriers:
    """The processes that were started, by run; `start` gives none for a job that has no workspace."""

    def __init__(self, start: Callable[[SlurmJob], Process | None]) -> None:
        self._start = start
        self.started: dict[_Run, Process] = {}
        self._gone: dict[_Run, float] = {}  # since when Slurm does not name the job of a process
        self._again: dict[_Run, float] = {}  # when one that has ended is started again

    def look(self, jobs: Sequence[SlurmJob] | None, now: float) -> None:
        """With the jobs that are on such nodes; None where slurmctld does not say."""
        for run in [run for run, process in self.started.items() if process.poll() is not None]:
            del self.started[run]
            self._again[run] = now + _AGAIN_S
        if jobs is None:
            return
        known = {(job.own, job.restarts): job for job in jobs}
        self._again = {run: until for run, until in self._again.items() if run in known}
        for run, job in known.items():
            waits = job.state != "RUNNING" or self._again.get(run, now) > now
            if not waits and run not in self.started:
                process = self._start(job)
                if process is None:
                    self._again[run] = float("inf")
                else:
                    self.started[run] = process
        self._gone = {run: self._gone.get(run, now) for run in self.started if run not in known}
        for run, since in self._gone.items():
            if now - since > _GONE_S:
                self.started[run].terminate()


def carriers(paths: Paths) -> tuple[str, ...]:
    """The nodes to which workspaces are carried."""
    return tuple(node for node, carries in nodes.other_work(paths).items() if carries)


def _started(job: SlurmJob, there: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """None of a job that has no workspace."""
    uid = job.uid
    if uid is None or not job.batch or carrying.of_folder(job.folder, uid) is None:
        return None
    on = [node for node in job.nodes if node in there]
    task = "-" if job.task is None else str(job.task)
    which = "all" if len(on) == len(job.nodes) else "some"
    run = f"{job.own}-{job.restarts}"
    argv = ["dshpc-node", "job", "carry", job.folder, str(job.number), run, task, which, *on]
    return subprocess.Popen(
        [*_as_user(uid), *argv], stdin=subprocess.DEVNULL, env=_environment(), cwd="/"
    )


def _as_user(uid: int) -> list[str]:
    if uid == os.getuid() or rights.is_one_id():
        return []
    try:
        found = pwd.getpwuid(uid)
        grp.getgrgid(found.pw_gid)
    except KeyError:
        return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--"]
    return ["setpriv", "--reuid", str(uid), "--regid", str(found.pw_gid), "--init-groups", "--"]


def _environment() -> dict[str, str]:
    kept = ("PATH", "TZ", "LC_ALL", "LANG")
    return {name: os.environ[name] for name in kept if name in os.environ}
