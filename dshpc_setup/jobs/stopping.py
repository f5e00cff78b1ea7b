"""Signals that tell a submission to stop. Imports are counted: each submission takes this."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator

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

    with _handled(interrupt):
        yield


@contextlib.contextmanager
def told_to_stop() -> Iterator[list[str]]:
    """The names of those that have come, kept until a submission of several jobs can stop: between two
    sbatch calls."""
    told: list[str] = []
    with _handled(lambda number, _: told.append(signal.Signals(number).name)):
        yield told


@contextlib.contextmanager
def _handled(handler: Callable[[int, object], None]) -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOPS}
    for number in STOPS:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
