"""Ctrl-C while something in a container is waited for: it is told, and its answer is still awaited.

The end of an engine's client ends nothing inside. What runs under a token of `as-user` can be told.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dshpc_setup.signals import handled

if TYPE_CHECKING:
    from dshpc_setup.machine import Machine

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DELIVER_S = 10.0
_NOT_THERE = 3  # as-user's exit code where nothing runs under the token yet
_TRIES = 10
_AGAIN_S = 0.1


@contextlib.contextmanager
def passed_on(deliver: Callable[[], None], patience_s: float) -> Iterator[list[int]]:
    """While it lasts the first of INT, TERM and HUP is handed on, and a second one ends us as ever; so
    does the time where nothing has come of the first.

    Gives the numbers of those that have come. One that our caller ignores (nohup) stays ignored.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # whose handlers run elsewhere
        yield came
        return
    before = {each: signal.getsignal(each) for each in _STOPS}
    mine = {each: handler for each, handler in before.items() if callable(handler)}

    def hear(number: int, frame: object) -> None:
        came.append(number)
        if len(came) > 1:
            mine[signal.Signals(number)](number, frame)  # type: ignore[arg-type]
        else:
            deliver()
            signal.setitimer(signal.ITIMER_REAL, patience_s)

    with handled(mine, hear), handled([signal.SIGALRM], _give_up):
        try:
            yield came
        finally:
            if came:
                signal.setitimer(signal.ITIMER_REAL, 0)


def _give_up(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def deliver(machine: Machine, argv: Sequence[str]) -> None:
    """TERM to what `argv`, an `as-user --signal TOKEN` in the container, names; it may not have been started
    yet."""
    for _ in range(_TRIES):
        done = machine.run([*argv, "TERM"], deadline_s=_DELIVER_S)
        if done.code != _NOT_THERE:
            return
        time.sleep(_AGAIN_S)
