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
from dataclasses import dataclass
from typing import Any, NoReturn

from dshpc_setup.machine import Ended, Say

_GRACE_S = 0.05  # for a child to end the tools that it has started
_REAP_S = 0.02
_BLOCK = 1 << 16
_HEADER = 4
_MOST_BYTES = 64 << 20  # an answer larger than this is none


def ask(questions: Mapping[str, Callable[[Say], None]], deadline_s: float) -> dict[str, Ended]:
    """Ask all; never waits longer than the deadline, and a moment for children to be killed.

    What a child said before it was killed, crashed or raised is kept in its `items`.
    """
    started = time.monotonic()
    children: dict[str, _Child] = {}
    try:
        for name, question in questions.items():
            children[name] = _Child(question)
        _listen(list(children.values()), started + deadline_s)
        return {name: child.ended(deadline_s) for name, child in children.items()}
    finally:
        _end(list(children.values()))


def in_place(questions: Mapping[str, Callable[[Say], None]]) -> dict[str, Ended]:
    """The same without processes, one after the other, for machines that cannot hang."""
    found = {}
    for name, question in questions.items():
        items: list[Any] = []
        started = time.monotonic()
        try:
            question(items.append)
        except Exception as error:  # noqa: BLE001  (an error of ours is an answer like any other)
            found[name] = Ended("error", tuple(items), _in_words(error), _since(started))
        else:
            found[name] = Ended("present", tuple(items), None, _since(started))
    return found


@dataclass
class _Exit:
    """The last item of a child that has come to its end."""

    error: str | None


class _Child:
    def __init__(self, question: Callable[[Say], None]) -> None:
        self.started = time.monotonic()
        self.reaped = False
        self._ms: float | None = None
        self._code: int | None = None
        self._buffer = bytearray()
        self._noise = _noise_file()
        self.answers, mine = os.pipe()
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.answers)
            os.close(mine)
            raise
        if self.pid == 0:
            _run_child(question, mine, self._noise)
        os.close(mine)

    def pump(self) -> bool:
        """Take what has come; False once there will be no more."""
        block = os.read(self.answers, _BLOCK)
        if block and len(self._buffer) < _MOST_BYTES:
            self._buffer += block
            return True
        self._ms = _since(self.started)
        return False

    def reap(self, until: float) -> None:
        """Take the exit status, should it come by then; a child in the kernel's hands is left."""
        while not self.reaped:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # somebody ignores SIGCHLD: the kernel has reaped it
                self.reaped = True
                return
            if pid:
                self.reaped, self._code = True, os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= until:
                return
            else:
                time.sleep(0.0005)

    def kill(self, number: signal.Signals) -> None:
        # Its whole session: a tool that it is waiting for as well.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def ended(self, deadline_s: float) -> Ended:
        items = list(_unpacked(self._buffer))
        last = items.pop() if items and isinstance(items[-1], _Exit) else None
        if last is not None:
            state = "error" if last.error else "present"
            return Ended(state, tuple(items), last.error, self._ms or 0.0)  # type: ignore[arg-type]
        if self._ms is None:
            return Ended(
                "timeout", tuple(items), f"no answer within {deadline_s:g} s", _since(self.started)
            )
        return Ended("error", tuple(items), self._how_it_died(), self._ms)

    def _how_it_died(self) -> str:
        self.reap(time.monotonic() + _REAP_S)
        code = self._code
        if code is None:
            how = "the asking process closed its answer without one"
        elif code < 0:
            with contextlib.suppress(ValueError):
                code = signal.Signals(-code).name  # type: ignore[assignment]
            how = f"the asking process crashed ({code})"
        else:
            how = f"the asking process ended early with code {code}"
        last = self.noise().strip().splitlines()[-1:]
        return f"{how}: {last[0]}" if last else how

    def noise(self) -> str:
        """What the child, or a library in it, wrote to its standard streams."""
        if self._noise is None:
            return ""
        size = os.fstat(self._noise).st_size
        return os.pread(self._noise, 4096, max(0, size - 4096)).decode(errors="replace")

    def close(self) -> None:
        os.close(self.answers)
        if self._noise is not None:
            os.close(self._noise)


def _listen(children: list[_Child], until: float) -> None:
    waiting = {child.answers: child for child in children}
    poll = select.poll()
    for descriptor in waiting:
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
    while waiting:
        left_s = until - time.monotonic()
        if left_s <= 0:
            return
        for descriptor, _ in poll.poll(left_s * 1000):
            if not waiting[descriptor].pump():
                poll.unregister(descriptor)
                del waiting[descriptor]


def _end(children: list[_Child]) -> None:
    """Kill those that still run, reap all that can be, close everything."""
    now = time.monotonic()
    for child in children:
        child.reap(now)
    left = [child for child in children if not child.reaped]
    for number, grace_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _REAP_S)):
        for child in left:
            child.kill(number)
        until = time.monotonic() + grace_s
        for child in left:
            child.reap(until)
        left = [child for child in left if not child.reaped]
    for child in children:
        child.close()


def _run_child(question: Callable[[Say], None], answers: int, noise: int | None) -> NoReturn:
    """The child's whole life. Nothing of the parent's is to be run or flushed: it leaves by _exit."""
    code = 1
    try:
        os.setsid()
        _quiet(noise)
        signal.signal(signal.SIGTERM, _terminated)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

        def say(item: Any) -> None:
            body = pickle.dumps(item)
            view = memoryview(len(body).to_bytes(_HEADER, "big") + body)
            while view:
                view = view[os.write(answers, view) :]

        try:
            question(say)
        except Exception as error:  # noqa: BLE001  (an error of ours is an answer like any other)
            say(_Exit(_in_words(error)))
        else:
            say(_Exit(None))
        code = 0
    finally:
        os._exit(code)


def _terminated(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt  # so that a command that is being waited for is killed on the way out


def _quiet(noise: int | None) -> None:
    """Libraries print what they like; nothing of that may reach our stdout, or hold it open."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null if noise is None else noise, 1)
    os.dup2(null if noise is None else noise, 2)
    os.close(null)


def _noise_file() -> int | None:
    if not hasattr(os, "memfd_create"):  # macOS
        return None
    with contextlib.suppress(OSError):
        return os.memfd_create("dshpc-child")
    return None


def _unpacked(buffer: bytearray) -> Iterator[Any]:
    start = 0
    while start + _HEADER <= len(buffer):
        size = int.from_bytes(buffer[start : start + _HEADER], "big")
        body = bytes(buffer[start + _HEADER : start + _HEADER + size])
        start += _HEADER + size
        if len(body) < size:
            return  # it was killed in the middle of a word
        try:
            yield pickle.loads(body)
        except Exception:  # noqa: BLE001  (a crashing library may write into any memory)
            return


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _since(started: float) -> float:
    return round((time.monotonic() - started) * 1000, 1)
