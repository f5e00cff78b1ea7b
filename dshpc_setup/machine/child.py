"""The child's side of a question asked apart: how it is made, what it runs, how it leaves.

What it says goes through a pipe in frames: a byte (item or end), four bytes of length, a pickle.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from dshpc_setup.errors import words_of
from dshpc_setup.machine import Say

ITEM, END = 0, 1
HEADER = 5

_ENDING: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_noting: list[list[int]] = []  # at most one: whoever notes them while another does shares its list


@contextlib.contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Ctrl-C and its like are noted here while it lasts, and take effect at its end.

    So none comes between the start of a process and the moment in which its end is seen to. Within
    another such time they take effect at the end of that, and what came before is in the list.
    """
    if _noting:
        yield _noting[0]
        return
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # whose handlers run elsewhere
        yield came
        return
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    mine = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in mine:
            signal.signal(number, lambda each, _: came.append(each))
        _noting.append(came)
        yield came
    finally:
        with blocked_signals():
            _noting.clear()
            for number, handler in mine.items():
                signal.signal(number, handler)
            for number in came[:1]:
                signal.raise_signal(number)


@contextlib.contextmanager
def blocked_signals() -> Iterator[set[int]]:
    """Ctrl-C waits: a child would run our caller's code for it. Gives what was blocked before."""
    before = {int(each) for each in signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)}
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def fork() -> int:
    if sys.version_info >= (3, 12):
        import warnings

        # It warns where there are other threads (a live line on the terminal). Our child takes no
        # lock of theirs: it reads, writes to its pipe and leaves by _exit.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return os.fork()
    return os.fork()


def pipe() -> tuple[int, int]:
    """Both ends beyond the standard streams, which may be closed here and are set in the child."""
    ends = os.pipe()
    if min(ends) > 2:
        return ends
    import fcntl

    reading, writing = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
    return reading, writing


def live(
    question: Callable[[Say], None], answering: int, printing: int, mask: set[int]
) -> NoReturn:
    """The child's whole life. Nothing of the parent's is to be run or flushed: it leaves by _exit."""
    code = 1
    try:
        os.setsid()
        _quiet(printing)
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = _answer(question, answering)
    finally:
        os._exit(code)


def _answer(question: Callable[[Say], None], answering: int) -> int:
    turn = threading.Lock()  # a question may ask in threads: their frames must not mix

    def tell(kind: int, item: Any) -> None:
        body = pickle.dumps(item, pickle.HIGHEST_PROTOCOL)
        view = memoryview(bytes([kind]) + len(body).to_bytes(HEADER - 1, "big") + body)
        with turn:
            while view:
                view = view[os.write(answering, view) :]

    try:
        question(lambda item: tell(ITEM, item))
    except Exception as error:  # noqa: BLE001  (an error of ours is an answer like any other)
        tell(END, words_of(error))
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    else:
        tell(END, None)
    return 0


def _quiet(printing: int) -> None:
    """Libraries print what they like; nothing of that may reach our stdout, or hold it open."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(printing, 1)
    os.dup2(printing, 2)
    if null > 2:
        os.close(null)
