"""Signals that tell a submission to stop, kept until it can: between two sbatch calls."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def told_to_stop() -> Iterator[list[str]]:
    """The names of those that have come: none of them ends us in the midst of an sbatch call, whose
    job nobody would know."""
    told: list[str] = []
    before = {number: signal.getsignal(number) for number in STOPS}
    for number in STOPS:
        signal.signal(number, lambda came, _: told.append(signal.Signals(came).name))
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
