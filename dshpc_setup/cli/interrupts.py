"""TERM and HUP end a command as Ctrl-C does: its children are killed, what was done is told."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def raised(ended_by: list[int]) -> Iterator[None]:
    """While it lasts, TERM and HUP raise KeyboardInterrupt; their number is added to `ended_by`.

    Only the first does: the kernel and the shell may both say that a terminal is gone, and the
    second must not disturb the clearing up. One that our caller ignores (nohup) stays ignored.
    """

    def interrupt(number: int, _frame: object) -> None:
        if not ended_by:
            ended_by.append(number)
            raise KeyboardInterrupt

    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    mine = {each: handler for each, handler in before.items() if handler == signal.SIG_DFL}
    for each in mine:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each, handler in mine.items():
            signal.signal(each, handler)
