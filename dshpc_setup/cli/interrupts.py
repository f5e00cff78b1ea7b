"""TERM and HUP end a command as Ctrl-C does: its children are killed, what was done is told."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from dshpc_setup.signals import handled


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

    both = (signal.SIGTERM, signal.SIGHUP)
    with handled([each for each in both if signal.getsignal(each) == signal.SIG_DFL], interrupt):
        yield
