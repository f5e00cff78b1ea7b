"""Waiting until no job runs, with the queue held: `--when-idle`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from dshpc_setup.cluster.stopping import RunningJob, running_jobs
from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import Machine
from dshpc_setup.terminal.reporter import Reporter
from dshpc_setup.terminal.sanitize import counted, listed

FLAG = "--when-idle"
_ASK_S = 60.0
_LOOK_S = 2.0
_NAMED = 4
_RENEW_S = 10.0  # of a lease of 60 s (container/hold.py)


class WhenIdle:
    """Waits at most once, and holds the queue until it is left: then queued jobs go on, where the cluster was
    not started anew meanwhile. What ends the wait (Ctrl-C) leaves all as it was.
    """

    flag = FLAG

    def __init__(self, asked: bool = False) -> None:
        self.asked = asked
        self._held = contextlib.ExitStack()
        self._of: str | None = None

    def __enter__(self) -> WhenIdle:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def wait(self, machine: Machine, container: str, reporter: Reporter) -> None:
        """Until no job runs there, and none begins any more. Raises DshpcError where the cluster cannot be
        asked."""
        if self._of == container:
            return
        self._held.enter_context(_queue_held(machine, container))
        self._of = container
        _wait(machine, container, reporter)


@contextlib.contextmanager
def _queue_held(machine: Machine, container: str) -> Iterator[None]:
    began = _started(machine, container)
    try:
        _hold(machine, container, "begin")
        yield
    finally:
        with contextlib.suppress(DshpcError):  # the lease ends by itself
            if _started(machine, container) == began:
                _hold(machine, container, "end")


def _wait(machine: Machine, container: str, reporter: Reporter) -> None:
    renewed = time.monotonic()
    while True:
        jobs = running_jobs(machine, container)
        if jobs is None:
            raise DshpcError(
                "It is not known whether jobs run: squeue gave no answer.",
                "Nothing was stopped.",
                ("See what is wrong: dshpc doctor",),
                Exit.INCOMPLETE,
            )
        if not jobs:
            return
        reporter.progress(_told(jobs))
        time.sleep(_LOOK_S)
        if time.monotonic() - renewed > _RENEW_S:
            _hold(machine, container, "renew")
            renewed = time.monotonic()


def _told(jobs: tuple[RunningJob, ...]) -> str:
    named = listed(tuple(job.title for job in jobs), most=_NAMED)
    return (
        f"waiting, with the queue held (Ctrl-C releases it and changes nothing), for "
        f"{counted(len(jobs), 'job')}: {named}"
    )


def _hold(machine: Machine, container: str, verb: str) -> None:
    done = containers.exec_in(machine, container, ("dshpc-node", "hold", verb), deadline_s=_ASK_S)
    if not done.ok:
        raise DshpcError(
            "The queue could not be held while running jobs are waited for.",
            done.stderr.strip() or f"It ended with {done.code} ({done.state}).",
            ("See what is wrong: dshpc doctor",),
            Exit.INCOMPLETE,
        )


def _started(machine: Machine, container: str) -> str | None:
    found = containers.inspect(machine, container)
    return None if found is None else f"{found.id} {found.started}"
