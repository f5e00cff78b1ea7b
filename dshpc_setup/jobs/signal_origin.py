"""Whether a signal came to all processes of a job, or to the launcher alone.

Slurm tells all of them (scancel, the time limit), their process group (scancel --full), or the batch
script, which is the launcher (scancel --batch, sbatch --signal=B:); and who was meant, a signal does not
say (_handle_signal_container in slurmstepd's req.c). What was told already must not be told twice: the
second TERM would come in the midst of a last save. So a process beside the program does nothing but wait
to be ended by a signal.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection


class Witness:
    """A copy of this process, in its process group; it ends with us, however we end."""

    def __init__(self, numbers: Collection[signal.Signals]) -> None:
        self._numbers = numbers
        self._pid = 0
        self._held = -1  # our end of a pipe

    def begin(self) -> None:
        """Where no process can be had, there is none, and nothing is heard."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        try:
            here, self._held = os.pipe()
            try:
                self._pid = os.fork()
                if self._pid == 0:
                    self._wait(here)
            except OSError:
                os.close(self._held)
                raise
            finally:
                os.close(here)
        except OSError:
            self._pid = 0
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _wait(self, here: int) -> None:
        """In the copy."""
        try:
            os.close(self._held)
            for number in self._numbers:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)
            os.read(here, 1)  # until nobody holds the other end
        finally:
            os._exit(0)

    def heard(self) -> int | None:
        """The number of the signal that has ended it; another one takes its place then."""
        if not self._pid:
            return None
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            return None
        self._release()
        self.begin()
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None

    def end(self) -> None:
        if pid := self._pid:
            self._release()
            os.waitpid(pid, 0)

    def _release(self) -> None:
        os.close(self._held)
        self._pid = 0
