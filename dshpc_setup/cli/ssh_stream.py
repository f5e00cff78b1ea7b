"""Our stdin handed to one program after the other, until one of them takes it.

The engine's client reads what it is given before anything inside has said that it wants it: so it is
copied, and what the client of ssh has said so far is said again to the next.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

from dshpc_setup.files.streams import write_all
from dshpc_setup.signals import handled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STOPS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_AS_ONE_S = 1.0
_AGAIN_S = 5.0
_BLOCK = 1 << 18
_KEPT = 1 << 16  # a client says no more before it has heard of a server
_PIECE = 1 << 10  # as slurmstepd sends it: where one comes whole, more follow
_GATHER_S = 0.002


class Stream:
    def __init__(self) -> None:
        self._said = b""
        self._over = False
        self._feed = -1
        self._lock = threading.Lock()
        self.hang_up = False  # whether the end of our stdin is to end what we wait for
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, argv: Sequence[str], *, in_pieces: bool = False) -> int:
        """Its exit code, 128 + N where signal N ended it. OSError where it cannot be started.

        What it says `in_pieces` is gathered: for each of them ssh would read and decrypt by itself.
        """
        with hung_up():
            if not in_pieces:
                return self._run(argv, [])
            said, say = os.pipe()
            try:
                copying = threading.Thread(target=_gather, args=(said,))
                copying.start()
                code = self._run(argv, [(os.POSIX_SPAWN_DUP2, say, 1)])
            finally:
                os.close(say)
            copying.join()
            return code

    def _run(self, argv: Sequence[str], also: list[tuple[int, int, int]]) -> int:
        drain, feed = os.pipe()
        try:
            pid = os.posix_spawnp(
                argv[0],
                list(argv),
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, drain, 0), *also],
                setsigdef=[signal.SIGPIPE],
            )
        except BaseException:
            os.close(feed)
            raise
        finally:
            os.close(drain)
        with self._lock:
            self._feed = feed
            self._write(self._said)
            if self._over:
                self._close()
        _, status = os.waitpid(pid, 0)
        with self._lock:
            self._close()
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _read(self) -> None:
        while True:
            try:
                block = os.read(0, _BLOCK)
            except OSError:
                block = b""
            with self._lock:
                if not block:
                    self._over = True
                    self._close()
                    break
                if len(self._said) < _KEPT:
                    self._said += block
                self._write(block)
        while self.hang_up:
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(_AGAIN_S)

    def _write(self, block: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, and so will we
            while block and self._feed >= 0:
                block = block[os.write(self._feed, block) :]

    def _close(self) -> None:
        if self._feed >= 0:
            os.close(self._feed)
            self._feed = -1


def _gather(said: int) -> None:
    with contextlib.suppress(OSError):
        while block := os.read(said, _BLOCK):
            write_all(1, block)
            if len(block) >= _PIECE:
                time.sleep(_GATHER_S)
    os.close(said)


@contextlib.contextmanager
def hung_up() -> Iterator[None]:
    """While it lasts a signal ends us without a word: whoever is at the other end has gone."""
    heard = [number for number in _STOPS if signal.getsignal(number) != signal.SIG_IGN]
    with handled(heard, lambda number, _: os._exit(128 + number)):
        yield


@contextlib.contextmanager
def as_one() -> Iterator[None]:
    """While it lasts a single Ctrl-C counts once: it comes to us, then ssh that it has ended sends HUP, our
    stdin ends, and the terminal may hang up. What comes a second later is another one."""
    first: list[float] = []

    def hear(_number: int, _frame: object) -> None:
        first.append(time.monotonic())
        if first[-1] - first[0] > _AS_ONE_S:
            raise KeyboardInterrupt

    with handled(_STOPS, hear):
        yield
