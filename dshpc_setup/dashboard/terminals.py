"""Terminals in the browser: programs on terminals of their own, each shown by one page at a time.

A page that is loaded again finds it as it was. One that nobody shows is ended after a short while, as is one
that has been open for very long. What it prints is kept up to a bound, and waits for a page that is slow.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dshpc_setup.errors import DshpcError
from dshpc_setup.machine.pseudo_terminal import Size

LINGER_S = 60.0
LONGEST_S = 12 * 3600.0
MOST = 8
_KEPT = 1 << 18  # of what it has printed, for a page that is slow, or loaded again
_ENDED_KEPT_S = 600.0
_LOOK_S = 1.0


class Program(Protocol):
    """A `machine.pseudo_terminal.Child`."""

    def read(self) -> bytes: ...
    def type(self, keys: bytes) -> bool: ...
    def resize(self, size: Size) -> None: ...
    def code(self) -> int | None: ...
    def hang_up(self) -> None: ...
    def close(self) -> None: ...


Start = Callable[[Sequence[str], Size], Program]


@dataclass(frozen=True)
class Printed:
    """`end` counts all that it has printed so far; `code` once it has ended and all was told."""

    data: bytes
    end: int
    code: int | None


class Terminal:
    """One of them. `words`: the command that shows the same."""

    def __init__(self, words: Sequence[str], child: Program, clock: Callable[[], float]) -> None:
        self.key = secrets.token_urlsafe(16)
        self.words = tuple(words)
        self.child = child
        self._clock = clock
        self._changed = threading.Condition()
        self._kept, self._end, self._sent = bytearray(), 0, 0
        self._page = 0  # the last one that came
        self._shown = False
        self.began = self._left = clock()
        self.ended: float | None = None
        self.code: int | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def attach(self) -> tuple[int, int]:
        """The number of a page that comes, and from where on there is something to show."""
        with self._changed:
            self._page += 1
            self._shown = True
            self._sent = self._end - len(self._kept)
            self._changed.notify_all()
            return self._page, self._sent

    def detach(self, page: int) -> None:
        with self._changed:
            if page == self._page:
                self._shown, self._left = False, self._clock()
                self._changed.notify_all()

    def next(self, page: int, begin: int, wait_s: float) -> Printed | None:
        """What came after `begin`, waited for; None where another page shows it by now."""
        with self._changed:
            if page == self._page:
                self._sent = max(self._sent, begin)
                self._changed.notify_all()
            self._changed.wait_for(
                lambda: page != self._page or self._end > begin or self.code is not None, wait_s
            )
            if page != self._page:
                return None
            there = self._end - len(self._kept)
            data = bytes(self._kept[max(0, begin - there) :])
            return Printed(data, self._end, self.code)

    def is_left(self) -> bool:
        """Whether nobody has shown it for a while, or it has lasted too long."""
        now = self._clock()
        with self._changed:
            unseen = not self._shown and now - self._left > LINGER_S
        return unseen or now - self.began > LONGEST_S

    def _listen(self) -> None:
        while block := self.child.read():
            with self._changed:
                while self._shown and self._end > self._sent + _KEPT - len(block):
                    self._changed.wait()
                self._kept += block
                del self._kept[:-_KEPT]
                self._end += len(block)
                self._changed.notify_all()
        while (code := self.child.code()) is None:
            time.sleep(0.05)
        with self._changed:
            self.code, self.ended = code, self._clock()
            self._changed.notify_all()
        self.child.close()


class Terminals:
    """All of one dashboard."""

    def __init__(self, start: Start, clock: Callable[[], float] = time.monotonic) -> None:
        self._start, self._clock = start, clock
        self._lock = threading.Lock()
        self._all: dict[str, Terminal] = {}
        self._over = threading.Event()
        self._watch: threading.Thread | None = None

    def open(self, words: Sequence[str]) -> Terminal:
        """Raises DshpcError where there are too many, or it cannot be started."""
        with self._lock:
            if self._over.is_set() or sum(each.code is None for each in self._all.values()) >= MOST:
                raise DshpcError(
                    f"{MOST} terminals are open: no more at once.", "", ("Close one of them.",)
                )
            try:
                child = self._start(words, Size())
            except OSError as error:
                raise DshpcError("The terminal cannot be opened.", str(error)) from None
            made = Terminal(words, child, self._clock)
            self._all[made.key] = made
            if self._watch is None:
                self._watch = threading.Thread(target=self._end_those_left, daemon=True)
                self._watch.start()
            return made

    def find(self, key: str) -> Terminal | None:
        with self._lock:
            return self._all.get(key)

    def running(self) -> tuple[Terminal, ...]:
        with self._lock:
            return tuple(each for each in self._all.values() if each.code is None)

    def end_all(self) -> None:
        """And open no more; what does not end is killed."""
        self._over.set()
        ending = [threading.Thread(target=each.child.hang_up) for each in self.running()]
        for each in ending:
            each.start()
        for each in ending:
            each.join()

    def tidy(self) -> None:
        """End those that nobody shows; forget those that ended long ago."""
        for each in self.running():
            if each.is_left():
                threading.Thread(target=each.child.hang_up, daemon=True).start()
        now = self._clock()
        with self._lock:
            for key, each in tuple(self._all.items()):
                if each.ended is not None and now - each.ended > _ENDED_KEPT_S:
                    del self._all[key]

    def _end_those_left(self) -> None:
        while not self._over.wait(_LOOK_S):
            self.tidy()
