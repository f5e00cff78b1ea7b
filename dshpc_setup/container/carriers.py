"""Starts what carries a job's workspace to nodes that have not the work folder: the service carry.

It runs on the controller's machine, and knows nothing: each job that runs on such a node gets a process of
its user's (jobs/carrying.py), which ends with it. Killed at any moment, it finds them running or starts them.
"""

from __future__ import annotations

import grp
import os
import pwd
import signal
import subprocess
import time
from collections.abc import Sequence

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
_COLUMNS = "JobID State RestartCnt ArrayTaskID UserID NodeList WorkDir"
_THERE = "RUNNING,COMPLETING,SUSPENDED,STOPPED"
_Run = tuple[int, int]  # a job's own number, and which run of it


def tend(machine: Machine, paths: Paths) -> None:
    """For ever."""
    started: dict[_Run, subprocess.Popen[bytes]] = {}
    missed: dict[_Run, float] = {}
    again: dict[_Run, float] = {}
    there: tuple[str, ...] = ()
    looked = 0.0
    while True:
        now = time.monotonic()
        if not looked or now - looked >= _NODES_S:
            there, looked = carriers(paths), now
        if not there and not started:
            time.sleep(_NODES_S)
            continue
        told = (
            Slurm(machine).rows(_COLUMNS, _THERE, on=there, deadline_s=_ASK_S).value
            if there
            else ()
        )
        now = time.monotonic()
        for run, process in list(started.items()):
            if process.poll() is not None:
                del started[run]
                again[run] = now + _AGAIN_S
        known = {(job.own, job.restarts): job for job in told or ()}
        for run, job in known.items():
            if job.state == "RUNNING" and run not in started and again.get(run, 0.0) <= now:
                if (begun := _started(job, there)) is not None:
                    started[run] = begun
                else:
                    again[run] = float("inf")
        for run in started if told is not None else ():
            since = missed.setdefault(run, now) if run not in known else missed.pop(run, now)
            if now - since > _GONE_S and run not in known:
                started[run].send_signal(signal.SIGTERM)
        again = {run: until for run, until in again.items() if run in known or told is None}
        missed = {run: since for run, since in missed.items() if run in started}
        time.sleep(_LOOK_S)


def carriers(paths: Paths) -> tuple[str, ...]:
    """The nodes to which workspaces are carried."""
    return tuple(node for node, carries in nodes.other_work(paths).items() if carries)


def _started(job: SlurmJob, there: Sequence[str]) -> subprocess.Popen[bytes] | None:
    """None of a job that has no workspace."""
    uid = job.uid
    if uid is None or carrying.of_folder(job.folder, uid) is None:
        return None
    on = [node for node in job.nodes if node in there]
    task = "-" if job.task is None else str(job.task)
    which = "all" if len(on) == len(job.nodes) else "some"
    argv = ["dshpc-node", "job", "carry", job.folder, f"{job.own}-{job.restarts}", task, which, *on]
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
