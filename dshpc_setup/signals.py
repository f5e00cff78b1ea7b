"""Signals that are answered otherwise for a while. Imports are counted: each submission takes this."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterable, Iterator


def name_of(number: int) -> str:
    """ "SIGKILL"; "signal 40" for one of those that have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


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


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C, and what else has a handler, counts once this is over.

    For what must not be cut in two, as the start of a process: between its fork and the return of Popen
    nobody knows it, and nobody would end it.
    """
    import threading  # which jobs' launcher, that asks for a name alone, does without

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled in the main thread alone
        return
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught: list[int] = []
    try:
        with handled(
            [number for number in ending if callable(signal.getsignal(number))],
            lambda number, _frame: caught.append(number),
        ):
            yield
    finally:
        for number in caught:
            signal.raise_signal(number)


def as_at_first() -> None:
    """Each signal does what it does by default and none is held back, as a program that is started expects.

    Python ignores SIGPIPE and SIGXFSZ, a script's shell more for what it starts with `&`, and an ignored
    signal stays ignored in the next program: `yes | head -1` would not end.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) != signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
