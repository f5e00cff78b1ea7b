"""A process that stays and is asked again and again: for a library that takes long to be opened.

As with `workers`, the library may hang or crash and takes its own process with it: the next asking has a new
one. It ends with who asks, whose end of its pipe it reads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from dshpc_setup.facts import State
from dshpc_setup.machine import Ended, Reply, Say, library
from dshpc_setup.machine.child import HEADER, ITEM, blocked_signals, fork, live, pipe

Question = Callable[[Callable[[], bool], Say], None]
"""Given what waits for the next asking (False: there is none any more), and what says an item; it says
None at the end of each answer."""

_MOST_BYTES = 16 << 20


class Resident:
    """Not for several threads."""

    def __init__(self, question: Question, source: str) -> None:
        self._question, self._source = question, source
        self._pid = 0
        self._asking = self._answers = -1
        self._buffer = bytearray()
        self._left: set[int] = set()  # in the kernel's hands, not reaped yet

    def ask(self, deadline_s: float) -> Reply:
        """As `library.ask`."""
        started = time.monotonic()
        self._reap()
        try:
            if not self._pid:
                self._start()
            os.write(self._asking, b"?")
            state, items, detail = self._read(started + deadline_s)
        except OSError as error:
            state, items, detail = "error", [], f"its process is gone: {error.strerror}"
        failed = any(isinstance(item, dict) and "failure" in item for item in items)
        if state != "present" or failed:
            self.close()
        ms = (time.monotonic() - started) * 1000
        if state == "timeout":
            detail = f"no answer within {deadline_s:g} s"
        return library.reply(Ended(state, tuple(items), detail, ms), self._source)

    def close(self) -> None:
        """End its process, hanging or not."""
        if not self._pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        for end in (self._asking, self._answers):
            os.close(end)
        self._left.add(self._pid)
        self._pid, self._buffer = 0, bytearray()
        self._reap()

    def _reap(self) -> None:
        for pid in list(self._left):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._left.discard(pid)

    def _start(self) -> None:
        told, self._asking = pipe()
        self._answers, answering = pipe()
        with blocked_signals() as before:
            pid = fork()
            if pid == 0:
                self._live(told, answering, before)
        self._pid = pid
        os.close(told)
        os.close(answering)
        os.set_blocking(self._answers, False)

    def _live(self, told: int, answering: int, mask: set[int]) -> NoReturn:
        try:
            os.close(self._asking)  # else it would not see its end
            os.close(self._answers)
            printing = os.open(os.devnull, os.O_WRONLY)
            wait = lambda: bool(os.read(told, 1))  # noqa: E731
            live(lambda say: self._question(wait, say), answering, printing, mask)
        finally:
            os._exit(1)

    def _read(self, until: float) -> tuple[State, list[Any], str | None]:
        items: list[Any] = []
        while True:
            while len(self._buffer) >= HEADER:
                length = int.from_bytes(self._buffer[1:HEADER], "big")
                if length > _MOST_BYTES:
                    return "error", items, "its answer is too large"
                if len(self._buffer) < HEADER + length:
                    break
                kind, body = self._buffer[0], bytes(self._buffer[HEADER : HEADER + length])
                del self._buffer[: HEADER + length]
                item = pickle.loads(body)
                if kind != ITEM:
                    return "error", items, item
                if item is None:
                    return "present", items, None
                items.append(item)
            left_s = until - time.monotonic()
            if left_s <= 0 or not select.select([self._answers], [], [], left_s)[0]:
                return "timeout", items, None
            block = os.read(self._answers, 1 << 16)
            if not block:
                return "error", items, "its process has ended"
            self._buffer += block
