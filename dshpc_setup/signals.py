"""Signals that are answered otherwise for a while. Imports are counted: each submission takes this."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, object], object]) -> Iterator[None]:
    """While it lasts `handler` is called for these signals; afterwards all is as it was before."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
