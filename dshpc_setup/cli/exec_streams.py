"""What a command in the container prints, on its way to us: text of others commands no terminal.

Names of jobs, logs and messages are written by whoever submits. A file or a pipe gets the bytes as they are,
and so does the terminal of a command that has one of its own inside (`srun`, `shell`).

Imported on the way to every `dshpc squeue`: see exec_session.
"""

from __future__ import annotations

import _thread
import os
import select
import signal
import sys

from dshpc_setup import engine_client

TYPE_CHECKING = False  # importing typing costs more than all of the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_BLOCK = 1 << 16
_MOST_SAID = 1 << 13  # an engine's client says less
_SAYS = tuple(text.encode() for text in engine_client.SAYS)
_DRAIN_S = 5.0


class Streams:
    """A pipe for each of these streams of ours; the two of one file share it, in their order.

    `shown`: those whose text is to be harmless; the bytes of others stay as they are. `engine`: what begins
    as an engine's own words do is kept, as `said`, and not written.
    """

    def __init__(
        self, targets: tuple[int, ...], shown: tuple[int, ...] = (), *, engine: bool = False
    ) -> None:
        self.actions: list[tuple[Any, ...]] = []  # for posix_spawn
        self.said: list[bytes] = []
        self._shown, self._engine = shown, engine
        # where it is read, where written, where it goes
        self._pipes: list[tuple[int, int, int]] = []
        self._done: list[Any] = []
        for target in targets:
            if self._pipes and os.path.sameopenfile(1, 2):
                self.actions.append((os.POSIX_SPAWN_DUP2, self._pipes[0][1], target))
                continue
            read, write = os.pipe()
            self._pipes.append((read, write, target))
            self.actions.append((os.POSIX_SPAWN_DUP2, write, target))

    def start(self) -> None:
        """The one that writes has been started: from here on our end of it is his alone."""
        for read, write, target in self._pipes:
            os.close(write)
            lock = _thread.allocate_lock()
            lock.acquire()
            self._done.append(lock)
            how = _words(target) if target in self._shown else _bytes
            last = read == self._pipes[-1][0]  # stderr's own, or that of both
            says = self.said if self._engine and last else None
            _thread.start_new_thread(_carry, (read, target, how, lock, says))

    def drain(self) -> None:
        """All that was printed is on the terminal, where nobody else still has the other end."""
        for lock in self._done:
            lock.acquire(timeout=_DRAIN_S)


def _bytes(block: bytes) -> bytes:
    return block


def _words(target: int) -> Callable[[bytes], bytes]:
    from dshpc_setup.terminal.sanitize import HarmlessStream

    encoding = getattr((sys.stdout, sys.stderr)[target - 1], "encoding", None) or "utf-8"
    stream = HarmlessStream()
    return lambda block: stream.shown(block).encode(encoding, "replace")


def _carry(
    read: int, target: int, how: Callable[[bytes], bytes], lock: Any, said: list[bytes] | None
) -> None:
    try:
        while True:
            block = os.read(read, _BLOCK)
            if said is not None:
                if block and (said or block.startswith(_SAYS)):
                    said.append(block)
                    if sum(map(len, said)) < _MOST_SAID:
                        continue
                    block = b"".join(said)  # an engine's words are fewer
                    said.clear()
                said = None if block else said
            left = how(block)
            while left:
                try:
                    left = left[os.write(target, left) :]
                except BlockingIOError:  # whoever gave it to us made it so
                    select.select([], [target], [])
            if not block:
                break
    except BrokenPipeError:
        os.kill(os.getpid(), signal.SIGPIPE)
    except OSError:  # the terminal has hung up: so has, for who writes, the pipe
        pass
    finally:
        os.close(read)
        lock.release()


def run(argv: list[str]) -> int:
    """A program whose words are to be harmless on our terminal: its exit code, 128 and the signal.

    Ctrl-C is the program's, which is in our process group; what ends us otherwise is passed on.
    OSError where it cannot be started.
    """
    terminals = tuple(filter(os.isatty, (1, 2)))
    streams = Streams(terminals, terminals)
    heard = signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    default = [signal.SIGPIPE, *([signal.SIGINT] if heard else [])]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.posix_spawnp(
        argv[0], argv, os.environ, file_actions=streams.actions, setsigdef=default
    )
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda by, _: os.kill(child, by))
    streams.start()
    _, status = os.waitpid(child, 0)
    streams.drain()
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
