"""`ssh-listen --name=NAME --linger=SECONDS`: the step of a job that sessions live in.

It listens on a socket of the user's alone, and runs `sshd -i` for each connection. It is what srun or the
batch script runs, so all that sessions start is in the job's step, within its limits and with its GPUs.
What outlives its session (an editor's server) is adopted, and ended with the job.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time

from dshpc_setup.ssh import place, processes

_SSHD = "/usr/sbin/sshd"
_OF_ROOT = "/usr/local/lib/dshpc/sshd-of-root.so"  # see container/sshd_of_root.c
_PR_SET_CHILD_SUBREAPER = 36
_WARN_S = (600, 60)  # before the job's end
_GRACE_S = 2.0
_NEVER_S = 300 * 86400  # Slurm says a year of a job without a limit
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Listen until the last connection has been gone for `--linger`, or a signal comes; the exit code."""
    options = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
    os.umask(0o077)
    variables = dict(os.environ)
    try:
        place.enter()
        listener = Listener(options["name"], float(options["linger"]), variables)
    except (OSError, LookupError, ValueError) as error:
        sys.stderr.write(f"dshpc: sessions cannot be served: {error}\n")
        return 2
    return listener.serve()


class Listener:
    """Raises OSError where it cannot listen."""

    def __init__(self, name: str, linger_s: float, variables: dict[str, str]) -> None:
        self.name, self.linger_s = name, linger_s
        self.job = variables.get("SLURM_JOB_ID", "?")
        end = variables.get("SLURM_JOB_END_TIME", "")
        self.end = float(end) if end.isdecimal() else None
        self.warnings = [] if self.end is None else [self.end - before for before in _WARN_S]
        self.warnings = [at for at in self.warnings if at > time.time()]
        self.sessions: set[int] = set()
        self.idle_since = time.monotonic()
        self.told: list[int] = []
        self.environ = dict(variables)
        if os.getuid() == 0:  # sshd of root wants this folder, and to change its root into it
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
            self.environ["LD_PRELOAD"] = _OF_ROOT
        place.write(f"{name}.conf", place.sshd_config(os.getcwd(), variables))
        place.write(f"{name}.say", self._said())
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.socket = socket.socket(socket.AF_UNIX)
        self.path = f"{name}.sock"
        new = f".{self.path}"
        self.socket.bind(new)
        os.chmod(new, 0o600)
        self.socket.listen(128)
        os.replace(new, self.path)
        self.inode = os.stat(self.path).st_ino

    def _said(self) -> str:
        gpus = os.environ.get("SLURM_JOB_GPUS")
        ends = []
        if self.end is not None and self.end < time.time() + _NEVER_S:
            at = time.strftime("%a %H:%M", time.localtime(self.end))
            ends.append(f"at {at}, its time limit")
        if not self.name.startswith("job-"):  # which leaving does not end
            minutes = self.linger_s / 60
            lingers = f"{minutes:.0f} min" if minutes >= 1 else f"{self.linger_s:.0f} s"
            ends.append(f"{lingers} after the last connection")
        over = f" It ends {', or '.join(ends)}." if ends else ""
        return f"dshpc: job {self.job}{f', GPU {gpus}' if gpus else ''}.{over}\n"

    def serve(self) -> int:
        heard, wake = os.pipe()
        for end in (heard, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _STOPS:
            signal.signal(number, lambda which, _: self.told.append(which))
        while not self.told:
            wait_s = self._wait_s()
            if wait_s <= 0 and not self.sessions and self._is_over():
                break
            watched = [self.socket.fileno(), heard]
            ready, _, _ = select.select(watched, [], [], max(0.05, wait_s))
            if heard in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(heard, 4096)
            self._reap()
            if watched[0] in ready:
                self._accept()
            self._warn()
        self._end()
        return 0

    def _is_over(self) -> bool:
        return time.monotonic() - self.idle_since >= self.linger_s

    def _wait_s(self) -> float:
        waits = [3600.0]
        if not self.sessions:
            waits.append(self.idle_since + self.linger_s - time.monotonic())
        if self.warnings:
            waits.append(self.warnings[0] - time.time())
        return min(waits)

    def _accept(self) -> None:
        try:
            joined, _ = self.socket.accept()
        except OSError:  # it has gone again
            return
        with joined:
            if place.peer(joined) not in (0, os.getuid()):
                return
            try:
                pid = os.posix_spawn(
                    _SSHD,
                    [_SSHD, "-i", "-e", "-f", f"{os.getcwd()}/{self.name}.conf"],
                    self.environ,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, joined.fileno(), 0),
                        (os.POSIX_SPAWN_DUP2, joined.fileno(), 1),
                    ],
                    setsigdef=[signal.SIGPIPE],
                )
            except OSError as error:
                sys.stderr.write(f"dshpc: {_SSHD} cannot be started: {error.strerror}\n")
                return
        self.sessions.add(pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.sessions:
                self.sessions.remove(pid)
                if not self.sessions:
                    self.idle_since = time.monotonic()

    def _warn(self) -> None:
        while self.warnings and self.warnings[0] <= time.time():
            self.warnings.pop(0)
            left_s = (self.end or 0) - time.time()
            left = f"{left_s / 60:.0f} min" if left_s > 90 else f"{left_s:.0f} s"
            processes.tell(f"job {self.job} ends in {left}, at its time limit.")

    def _end(self) -> None:
        """No more connections, then nothing of those that there were."""
        with contextlib.suppress(OSError):
            if os.stat(self.path).st_ino == self.inode:
                os.unlink(self.path)
        self.socket.close()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + _GRACE_S
            while left := processes.below(os.getpid()):
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, number)
                time.sleep(0.1)
                self._reap()
                if time.monotonic() > until:
                    break
