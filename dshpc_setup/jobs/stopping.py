"""Signals that tell a submission to stop. Imports are counted: each submission takes this."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from dshpc_setup.signals import handled

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """While it lasts, the first of them raises KeyboardInterrupt, and others do nothing: they must not
    disturb the taking back."""
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt

    with handled(STOPS, interrupt):
        yield


@contextlib.contextmanager
def told_to_stop() -> Iterator[list[str]]:
    """The names of those that have come, kept until a submission of several jobs can stop: between two
    sbatch calls."""
    told: list[str] = []
    with handled(STOPS, lambda number, _: told.append(signal.Signals(number).name)):
        yield told
