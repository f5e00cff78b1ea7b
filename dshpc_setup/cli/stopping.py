"""Ctrl-C while the cluster is asked something: it is told, and its answer is still awaited.

A submission that is told to stop takes back what it has queued (jobs/submit.py, workflows/run.py).
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dshpc_setup.errors import DshpcError
from dshpc_setup.signals import handled

if TYPE_CHECKING:
    from dshpc_setup.machine import Machine

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DELIVER_S = 10.0
_PATIENCE_S = 30.0  # sbatch is ended at once; what it has queued is looked for, and cancelled
_NOT_THERE = 3  # as-user's exit code where nothing runs under the token yet
_TRIES = 10
_AGAIN_S = 0.1


@contextlib.contextmanager
def passed_on(deliver: Callable[[], None]) -> Iterator[list[int]]:
    """While it lasts the first of INT, TERM and HUP is handed on, and a second one ends us as ever; so
    does the time where nothing has come of the first.

    Gives the numbers of those that have come. One that our caller ignores (nohup) stays ignored.
    """
    came: list[int] = []
    before = {each: signal.getsignal(each) for each in _STOPS}
    mine = {each: handler for each, handler in before.items() if callable(handler)}

    def hear(number: int, frame: object) -> None:
        came.append(number)
        if len(came) > 1:
            mine[signal.Signals(number)](number, frame)  # type: ignore[arg-type]
        else:
            deliver()
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)

    with handled(mine, hear), handled([signal.SIGALRM], _give_up):
        try:
            yield came
        finally:
            if came:
                signal.setitimer(signal.ITIMER_REAL, 0)


def _give_up(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def deliver(machine: Machine, argv: Sequence[str]) -> None:
    """TERM to what `argv`, a Call's `deliver`, names; it may not have been started yet."""
    for _ in range(_TRIES):
        done = machine.run([*argv, "TERM"], deadline_s=_DELIVER_S)
        if done.code != _NOT_THERE:
            return
        time.sleep(_AGAIN_S)


def too_late(answer: Mapping[str, Any] | None, number: int) -> DshpcError | None:
    """Where the answer was under way already: what is submitted all the same."""
    jobs = (answer or {}).get("jobs") or [answer or {}]
    ids = [
        str(job["job_id"]) for job in jobs if job.get("job_id") and job.get("action") != "reused"
    ]
    if not ids:
        return None
    return DshpcError(
        f"The interruption came too late: job {', '.join(ids)} is submitted.", "",
        (f"End it: dshpc job cancel {' '.join(ids)}",), 128 + number,
    )  # fmt: skip
