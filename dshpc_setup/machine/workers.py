"""Questions asked apart: each in a process of its own, all at the same time, with one deadline.

A driver call that hangs in the kernel takes its whole process with it: no signal ends it, and a
process that has such a thread cannot even exit. A library that crashes takes its process with it as
well. So whatever may touch a driver runs in a child made by `fork`, which costs a millisecond
where a new interpreter costs ten times that (docs/decisions/0009).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dshpc_setup import signals
from dshpc_setup.errors import words_of
from dshpc_setup.machine import Ended, Say, since_ms
from dshpc_setup.machine.child import (
    HEADER,
    ITEM,
    blocked_signals,
    fork,
    live,
    noted_signals,
    pipe,
)

_REAP_S = 0.1  # how long a killed child may take to go before it is left to the kernel
_LOOK_S = 0.05  # how often to look for a child that died while another process holds its pipe
_BLOCK, _BLOCKS = 1 << 16, 32
_MOST_BYTES = 64 << 20  # an answer larger than this is none
_NOISE_BYTES = 4096

_left: set[int] = set()  # children in the kernel's hands that could not be reaped yet


def ask(
    questions: Mapping[str, Callable[[Say], None]],
    deadline_s: float,
    meanwhile: Callable[[], object] | None = None,
    on_item: Callable[[Any], object] | None = None,
) -> dict[str, Ended]:
    """Ask all; never waits longer than the deadline, and a moment for children to be killed.

    `meanwhile` is done while they are at work: what a thread imports at the time of a fork is locked
    for ever in the child, what is imported after it harms nobody. It may ask others itself; what it
    raises ends them all.

    What a child said before it was killed, crashed or raised is kept in its `items`. What it has
    started in its own session, and all that it runs when it is killed, ends with it.
    """
    until = time.monotonic() + deadline_s
    _reap_left()
    children = {name: _Child(on_item) for name in questions}
    with noted_signals() as came:
        try:
            with blocked_signals() as before:
                for name, question in questions.items():
                    children[name].start(question, before)
            if meanwhile is not None:
                meanwhile()
            _listen([child for child in children.values() if child.pid], until, came)
            return {name: child.ended(deadline_s) for name, child in children.items()}
        finally:
            _end([child for child in children.values() if child.pid])


def in_place(
    questions: Mapping[str, Callable[[Say], None]],
    meanwhile: Callable[[], object] | None = None,
    on_item: Callable[[Any], object] | None = None,
) -> dict[str, Ended]:
    """The same without processes, one after the other, for machines that cannot hang."""
    if meanwhile is not None:
        meanwhile()
    found = {}
    for name, question in questions.items():
        items: list[Any] = []
        started = time.monotonic()
        try:
            question(_heard(items, on_item))
        except Exception as error:  # noqa: BLE001  (an error of ours is an answer like any other)
            found[name] = Ended("error", tuple(items), words_of(error), since_ms(started))
        else:
            found[name] = Ended("present", tuple(items), None, since_ms(started))
    return found


def _heard(items: list[Any], on_item: Callable[[Any], object] | None) -> Say:
    def say(item: Any) -> None:
        items.append(item)
        if on_item is not None:
            on_item(item)

    return say


class _Child:
    """One question, the process that it is put to, and what came of it."""

    def __init__(self, on_item: Callable[[Any], object] | None = None) -> None:
        self.pid = 0  # none could be started
        self.over = False  # nothing more will be said
        self.reaped = False
        self.streams: tuple[int, ...] = ()  # what it answers, what it prints: our ends
        self._items: list[Any] = []
        self._say = _heard(self._items, on_item)
        self._error: str | None = None
        self._told = False  # it came to its end and said so, or what it said is none
        self.ended_itself = False
        self._code: int | None = None
        self._noise = b""
        self._buffer = bytearray()
        self._taken = 0
        self._started = time.monotonic()
        self._ms = 0.0

    def start(self, question: Callable[[Say], None], mask: set[int]) -> None:
        """Signals are blocked now, and `mask` is what was blocked before."""
        self._started = time.monotonic()
        ends: list[int] = []
        try:
            ends += pipe()
            ends += pipe()
            self.pid = fork()
        except OSError as error:
            self._fail(f"no process could be started to ask: {error.strerror}")
            for end in ends:
                os.close(end)
            return
        answers, answering, noise, printing = ends
        if self.pid == 0:
            try:
                live(question, answering, printing, mask)
            finally:
                os._exit(1)
        os.close(answering)
        os.close(printing)
        for end in (answers, noise):
            os.set_blocking(end, False)
        self.streams = (answers, noise)

    def take(self, stream: int) -> bool:
        """What has come by then; False where the stream has ended."""
        for _ in range(_BLOCKS):  # not all: one that never stops must not hold us
            try:
                block = os.read(stream, _BLOCK)
            except BlockingIOError:
                break
            if stream != self.streams[0]:
                self._noise = (self._noise + block)[-_NOISE_BYTES:]
            elif not self.over:
                self._hear(block)
            if not block:
                return False
        return True

    def _hear(self, block: bytes) -> None:
        self._buffer += block
        self._taken += len(block)
        while not self.over and len(self._buffer) >= HEADER:
            size = HEADER + int.from_bytes(self._buffer[1:HEADER], "big")
            if len(self._buffer) < size:
                break
            kind, body = self._buffer[0], bytes(self._buffer[HEADER:size])
            del self._buffer[:size]
            self._understand(kind, body)
        if not self.over and self._taken > _MOST_BYTES:
            self._fail(f"the answer is longer than {_MOST_BYTES >> 20} MiB")
        elif not self.over and not block:
            self._finish()

    def _understand(self, kind: int, body: bytes) -> None:
        try:
            item = pickle.loads(body)
        except Exception as error:  # noqa: BLE001  (a crashing library may write into any memory)
            self._fail(f"the answer cannot be read: {words_of(error)}")
            return
        if kind == ITEM:
            self._say(item)
        else:
            self._told, self.ended_itself, self._error = True, True, item
            self._finish()

    def _fail(self, why: str) -> None:
        self._told, self._error = True, why
        self._finish()

    def _finish(self) -> None:
        self.over, self._ms = True, since_ms(self._started)

    def died(self) -> None:
        """Look whether it is dead though its pipe is open: a process of its own may hold that."""
        self.reap()
        if self.reaped:
            for stream in self.streams:
                self.take(stream)
            if not self.over:
                self._finish()

    def reap(self) -> None:
        if self.reaped:
            return
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # SIGCHLD is ignored: the kernel has reaped it
            self.reaped = True
            return
        if pid:
            self.reaped, self._code = True, os.waitstatus_to_exitcode(status)
            # What it started and did not wait for, at once: later the number may be another's.
            _kill(os.killpg, pid, signal.SIGKILL)

    def ended(self, deadline_s: float) -> Ended:
        items = tuple(self._items)
        if not self.over:
            why = f"no answer within {deadline_s:g} s"
            return Ended("timeout", items, why, since_ms(self._started))
        if not self._told:
            return Ended("error", items, self._how_it_died(), self._ms)
        return Ended("error" if self._error else "present", items, self._error, self._ms)

    def _how_it_died(self) -> str:
        _wait([self], _REAP_S)
        self.take(self.streams[1])
        if self._code is None:
            how = "the asking process closed its answer without one"
        elif self._code < 0:
            how = f"the asking process crashed ({signals.name_of(-self._code)})"
        else:
            how = f"the asking process ended early with code {self._code}"
        last = self._noise.decode(errors="replace").strip().splitlines()[-1:]
        return f"{how}: {last[0]}" if last else how

    def close(self) -> None:
        for stream in self.streams:
            os.close(stream)


def _listen(children: list[_Child], until: float, came: list[int]) -> None:
    """Until all are over, the deadline, or the first signal that came."""
    waiting = {stream: child for child in children for stream in child.streams}
    poll = select.poll()
    for stream in waiting:
        poll.register(stream, select.POLLIN)
    while not all(child.over for child in children):
        left_s = until - time.monotonic()
        last = left_s <= 0 or bool(came)  # what has come by now counts, also where we come late
        for stream, _ in poll.poll(0 if last else min(left_s, _LOOK_S) * 1000):
            if not waiting[stream].take(stream):
                poll.unregister(stream)
        for child in children:
            if not child.over:
                child.died()
        if last:
            return


def _end(children: list[_Child]) -> None:
    """Kill those that still run with all that they have started, reap all, close everything."""
    running = {child.pid for child in children if not (child.ended_itself or child.reaped)}
    for pid in running:
        _kill(os.kill, pid, signal.SIGSTOP)  # it shall start nothing more
    for pid in _family(running) if running else ():
        # With its group, should it lead one: whatever that starts at this moment is hit as well.
        _kill(os.killpg, pid, signal.SIGKILL)
        _kill(os.kill, pid, signal.SIGKILL)
    for child in children:
        if not child.reaped:
            _kill(os.killpg, child.pid, signal.SIGKILL)
            _kill(os.kill, child.pid, signal.SIGKILL)  # before it had a session of its own
    _wait(children, _REAP_S)
    for child in children:
        child.close()
        if not child.reaped:
            _left.add(child.pid)


def _wait(children: list[_Child], most_s: float) -> None:
    until = time.monotonic() + most_s
    while True:
        for child in children:
            child.reap()
        if all(child.reaped for child in children) or time.monotonic() >= until:
            return
        time.sleep(0.0005)


def _reap_left() -> None:
    for pid in tuple(_left):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _left.discard(pid)


def _kill(how: Callable[[int, int], None], pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        how(pid, number)


def _family(leaders: set[int]) -> set[int]:
    """They and all that they have started, by parent and by session, where /proc tells it."""
    found, processes = set(leaders), tuple(_processes())
    while True:
        more = {pid for pid, parent, session in processes if {parent, session} & found} - found
        if not more:
            return found
        found |= more


def _processes() -> Iterator[tuple[int, int, int]]:
    """Process, parent and session of everything that runs; nothing where there is no /proc."""
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self") != str(os.getpid()):
            return  # of another namespace: its numbers are not ours
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    with open(f"/proc/{name}/stat", "rb") as file:
                        fields = file.read().rpartition(b")")[2].split()
                    yield int(name), int(fields[1]), int(fields[3])
