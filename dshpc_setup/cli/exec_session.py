"""A Docker client as a child: its streams, the terminal, and signals carried to the process inside.

A signal to a `docker exec` client ends the client and does not reach what it started. So the client
is kept out of the way (a process group of its own, where Ctrl-C of the terminal does not come), and
every signal that we get is delivered by a second `docker exec`. Against SIGKILL nothing can be
done: if we are killed by it, the command inside goes on.

Imported on the way to every `dshpc srun`: nothing here may import more than the interpreter has.
"""

from __future__ import annotations

import os
import signal
import time

from dshpc_setup.cli import exec_stdin

TYPE_CHECKING = False  # importing typing costs more than all of the rest
if TYPE_CHECKING:
    from collections.abc import Set
    from typing import Any

    from dshpc_setup.cli.exec_streams import Streams

_FORWARDED = ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2")
_STOPPING = ("TSTP", "CONT")  # without a terminal inside, whose own Ctrl-Z does it
_DELIVER_S = 10.0  # a signal may come before the command has begun: try again so long
_HANGS_S = 5.0  # a delivery that takes longer: the engine does not answer
_LOOK_S = 1.0  # how often that is looked at while one is on its way
_ENDING = ("HUP", "INT", "QUIT", "TERM")


class Session:
    """One command in the container, from the start of the client to its end."""

    def __init__(
        self,
        client: list[str],
        deliver: list[str],
        mode: str,
        *,
        direct: bool = False,
        deaf: bool = False,
    ) -> None:
        """`client`: the whole `docker exec`; `deliver`: one that a signal's name is added to. `direct`: what
        runs gets our own streams, and not the client's; `deaf`: it does not end where stdout is closed."""
        self._client, self._deliver, self._mode = client, deliver, mode
        self._direct = direct
        self._closing = deaf and _is_pipe(1)
        self._child = 0
        self._streams: Streams | None = None
        self._closed = False  # nobody reads our stdout any more
        # delivery's pid -> signal, when it came, when this try began
        self._pending: dict[int, tuple[str, float, float]] = {}
        self.told_to_end = False  # by a signal that we got
        self.gave_up: str | None = None  # the signal at which a silent engine was given up

    def run(self) -> tuple[int, int]:
        """(exit code, 0), or (128 + N, N) where signal N ended the client.

        OSError where the client cannot be started.
        """
        names = _FORWARDED + (() if self._mode == exec_stdin.TTY else _STOPPING)
        caught = {number for number in map(_number, names) if _listens(number)}
        # A handler, because a signal whose default is to be ignored may be dropped on its way to
        # sigwait; and a SIGCHLD that our parent ignores would lose the exit code.
        signal.signal(signal.SIGCHLD, _nothing)
        if signal.SIGCONT in caught:
            signal.signal(signal.SIGCONT, _nothing)
        if self._mode != exec_stdin.TTY:
            # Inherited by the client, which writes from the background: for `stty tostop`.
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, _nothing)  # a timer: macOS has no sigtimedwait
        caught |= {signal.SIGCHLD, signal.SIGALRM}
        targets, shown = self._targets()
        if targets:
            signal.signal(signal.SIGPIPE, _nothing)
            caught.add(signal.SIGPIPE)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, caught)
        saved = _terminal() if self._mode == exec_stdin.TTY else None
        try:
            self._start(before, targets, shown)
            ended = self._wait(caught)
            if self._streams is not None:
                self._streams.drain()
            if self._closed:
                ended = 128 + signal.SIGPIPE, 0
        finally:
            _restore(saved)
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number in signal.sigpending() & caught:  # what came too late has nobody to go to
                signal.sigwait({number})
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return ended

    @property
    def said(self) -> bytes:
        """What the engine's client itself seems to have said, and nobody has seen."""
        return b"".join(self._streams.said) if self._streams is not None else b""

    def _targets(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which of stdout and stderr go through us, and which of these are made harmless."""
        if self._closing:
            return (1,), ()
        shown = tuple(filter(os.isatty, (1, 2))) if self._mode == exec_stdin.NONE else ()
        if self._direct:
            return shown, shown
        # With its stderr what the client itself says; those of one file stay in their order
        joined = self._mode != exec_stdin.TTY and os.path.sameopenfile(1, 2)
        return ((1, 2) if 1 in shown or joined else (2,)), shown

    def _start(self, mask: Set[int], targets: tuple[int, ...], shown: tuple[int, ...]) -> None:
        feed = drain = -1
        streams = None
        if self._mode == exec_stdin.PUMP:
            drain, feed = os.pipe()  # neither end is inherited but as the client's stdin
        elif self._mode == exec_stdin.NONE:
            drain = os.open(os.devnull, os.O_RDONLY)
        if targets:
            from dshpc_setup.cli.exec_streams import Streams

            self._streams = streams = Streams(targets, shown, engine=not self._direct)
        actions = [(os.POSIX_SPAWN_DUP2, drain, 0)] if drain >= 0 else []
        self._child = os.posix_spawnp(
            self._client[0],
            self._client,
            os.environ,
            file_actions=[*actions, *(streams.actions if streams else [])],
            # With a terminal inside, the client must be in the foreground to set ours to raw mode.
            setpgroup=os.getpgrp() if self._mode == exec_stdin.TTY else 0,
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE],  # the interpreter ignores it
        )
        if streams:
            streams.start()
        if drain >= 0:
            os.close(drain)
        if feed >= 0:
            import _thread

            _thread.start_new_thread(_pump, (feed,))

    def _wait(self, caught: set[signal.Signals]) -> tuple[int, int]:
        while True:
            number = signal.sigwait(caught)
            if number in (signal.SIGCHLD, signal.SIGALRM):
                ended = self._reap()
                if ended is not None:
                    return ended
                if number == signal.SIGALRM and (silent := self._silent()):
                    self.gave_up = silent
                    for pid in (self._child, *self._pending):
                        os.kill(pid, signal.SIGKILL)
                    return 128 + _number(silent), 0
            elif number == signal.SIGTSTP:
                self._stop()
            elif number == signal.SIGPIPE:
                self._closed = True
                self.abandon(number)
            else:
                name = signal.Signals(number).name[3:]
                self.told_to_end |= name in _ENDING
                self._forward(name, time.monotonic())

    def _silent(self) -> str | None:
        """The signal that is to end the command and whose delivery hangs."""
        if not self._pending:
            signal.setitimer(signal.ITIMER_REAL, 0)
        until = time.monotonic() - _HANGS_S
        late = (name for name, _, began in self._pending.values() if began < until)
        return next((name for name in late if name in _ENDING), None)

    def _reap(self) -> tuple[int, int] | None:
        """How the client ended, None while it has not; deliveries that failed are tried again."""
        ended = None
        again = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self._child:
                by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                ended = (128 + by if by else os.WEXITSTATUS(status), by)
            elif pid in self._pending:
                name, since, _ = self._pending.pop(pid)
                if status != 0 and time.monotonic() - since < _DELIVER_S:
                    again.append((name, since))
        if ended is None:
            for name, since in again:
                self._forward(name, since)
        return ended

    def _forward(self, name: str, since: float) -> int:
        """Deliver the signal that came at `since`: the delivery's pid."""
        pid = _quietly([*self._deliver, name])
        self._pending[pid] = (name, since, time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
        return pid

    def _stop(self) -> None:
        """Ctrl-Z: the command inside first, then ourselves; SIGCONT wakes both.

        STOP and not TSTP, which does nothing to a process without a shell over it.
        """
        pid = self._forward("STOP", time.monotonic())
        until = time.monotonic() + 2.0  # a CONT that overtakes the STOP would leave it stopped
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del self._pending[pid]
                if status != 0:
                    return  # it has not begun yet, or has ended: nothing to stop
                break
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGSTOP)

    def abandon(self, died_by: int) -> None:
        """The client is gone and the command inside may not be: it gets what a local one would get.

        A closed pipe is SIGPIPE, anything else a lost connection; TERM where that was not heard.
        """
        first = "PIPE" if died_by == signal.SIGPIPE else "HUP"
        for name in (first, "TERM"):
            pid = _quietly([*self._deliver, name])
            until = time.monotonic() + _HANGS_S
            while time.monotonic() < until:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    if status != 0:
                        return  # nothing runs there any more
                    break
                time.sleep(0.01)
            time.sleep(0.2)


def _quietly(argv: list[str]) -> int:
    """Start a program without streams and in a group of its own: its pid."""
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    return os.posix_spawnp(argv[0], argv, os.environ, file_actions=null, setpgroup=0, setsigmask=[])


def _is_pipe(stream: int) -> bool:
    import stat

    kind = os.fstat(stream).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def _number(name: str) -> signal.Signals:
    return signal.Signals["SIG" + name]


def _listens(number: int) -> bool:
    """Whether our caller lets us have it: `nohup` and `&` in a script ignore some."""
    return signal.getsignal(number) != signal.SIG_IGN


def _nothing(_number: int, _frame: object) -> None:
    return None


def _pump(feed: int) -> None:
    """The terminal's input into the pipe, to its end (Ctrl-D).

    Not read while we are in the background: that would stop us, with the command running on.
    """
    import select

    try:
        while True:
            select.select([0], [], [])
            if _in_background():
                time.sleep(0.1)
                continue
            block = os.read(0, 65536)
            if not block:
                break
            while block:
                block = block[os.write(feed, block) :]
    except OSError:  # the terminal has hung up, or the command has ended
        pass
    os.close(feed)


def _in_background() -> bool:
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:  # not our controlling terminal: nobody would stop us
        return False


def _terminal() -> list[Any] | None:
    import termios

    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore(saved: list[Any] | None) -> None:
    """A client that was killed leaves the terminal in raw mode."""
    if saved is None:
        return
    import contextlib
    import termios

    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # in the background, setting it would stop us
    with contextlib.suppress(termios.error):  # the terminal is gone
        termios.tcsetattr(0, termios.TCSADRAIN, saved)
