"""A dashboard for each user who has logged in: a process of that user's, on the loopback.

What it does it does by that user's own rights, on the machine and in Slurm. It ends with the front, and when
nobody has used it for a while.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup.builtin import processes
from dshpc_setup.builtin.processes import Process
from dshpc_setup.cluster import own_process
from dshpc_setup.dashboard.access import Access
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine

_BEGINS_S, _ENDS_S = 40.0, 8.0
_IDLE_S = 1800.0
_MOST = 50
_LEAST_UID = 1000  # below are the system's own, root first
_NOBODY = 65534
_LOOK_S = 10.0
_MOST_SAID = 1000
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)\n")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Theirs:
    """A user's own dashboard; `used` is when a connection of his ended last, `open` how many there are."""

    port: int
    cookie: str
    process: Process
    used: float
    open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class People:
    """`log` keeps what each process says, for root alone."""

    def __init__(
        self, machine: Machine, folder: Path, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._machine, self._folder, self._clock = machine, folder, clock
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}
        self._all: dict[str, Theirs] = {}
        self._over = threading.Event()
        self._logs = tempfile.TemporaryDirectory(prefix="dshpc-dashboards-")
        threading.Thread(target=self._end_idle, daemon=True).start()

    @contextmanager
    def of(self, name: str) -> Iterator[Theirs]:
        """His, begun where it does not run; raises DshpcError where it cannot be."""
        with self._lock:
            turn = self._turns.setdefault(name, threading.Lock())
        with turn:
            found = self._all.get(name)
            if found is None or not processes.runs(found.process):
                self._need_room(name)
                found = self._begin(name)
                with self._lock:
                    self._all[name] = found
            found.open += 1
        try:
            yield found
        finally:
            with turn:
                found.open -= 1
                found.used = self._clock()

    def end_all(self) -> None:
        self._over.set()
        with self._lock:
            there = list(self._all.values())
        for each in there:
            processes.send(each.process, signal.SIGINT)
        for each in there:
            if not processes.wait_gone(each.process, _ENDS_S):
                processes.send(each.process, signal.SIGKILL)
        self._logs.cleanup()

    def _need_room(self, name: str) -> None:
        with self._lock:
            running = [each for each in self._all.values() if processes.runs(each.process)]
        if self._over.is_set() or len(running) >= _MOST:
            raise DshpcError(f"{_MOST} users are here: {name} has to wait.")

    def _begin(self, name: str) -> Theirs:
        who = account(name)
        log = Path(self._logs.name) / f"{who.pw_uid}.log"
        log.write_bytes(b"")
        pid = self._machine.start_daemon(argv(who, self._folder), log=str(log))
        process = processes.of(pid)
        until = time.monotonic() + _BEGINS_S
        while process is not None and time.monotonic() < until:
            said = log.read_text(errors="replace")
            if (at := _ADDRESS.search(said)) is not None:
                access = Access(int(at[1]), token=at[2])
                log.write_bytes(b"")  # the token is kept nowhere
                cookie = f"{access.cookie}={access.session}"
                return Theirs(int(at[1]), cookie, process, self._clock())
            if not processes.runs(process):
                break
            time.sleep(0.05)
        if process is not None:
            processes.send(process, signal.SIGKILL)
        raise DshpcError(
            f"The dashboard of {name} was not started.", log.read_text(errors="replace")[-_MOST_SAID:],
            (f"Try it as {name}, in a terminal: dshpc dashboard --no-browser --dir {self._folder}",),
        )  # fmt: skip

    def _end_idle(self) -> None:
        while not self._over.wait(_LOOK_S):
            now = self._clock()
            with self._lock:
                idle = [
                    each
                    for each in self._all.values()
                    if not each.open and now - each.used > _IDLE_S
                ]
            for each in idle:
                processes.send(each.process, signal.SIGINT)


def account(name: str) -> pwd.struct_passwd:
    """Of this machine; raises DshpcError for none, and for the system's own."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise DshpcError(f"This machine has no user {name}.") from None
    if not _LEAST_UID <= found.pw_uid != _NOBODY:
        raise DshpcError(f"{name} is a user of the system's: no dashboard is his.")
    return found


def argv(who: pwd.struct_passwd, folder: Path) -> Sequence[str]:
    """The words that begin his dashboard with his rights and groups, and with nothing of our environment."""
    env = {
        "HOME": who.pw_dir, "USER": who.pw_name, "LOGNAME": who.pw_name, "SHELL": who.pw_shell,
        "PATH": _PATH, "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", "DSHPC_DIR": str(folder),
    }  # fmt: skip
    ids = (f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--init-groups", "--inh-caps=-all")
    variables = [f"{key}={value}" for key, value in env.items()]
    words = own_process.program(["dashboard", "--no-browser", "--dir", str(folder)], "/")
    return ["setpriv", *ids, "env", "-i", *variables, *words]


def refuse_without_rights(machine: Machine) -> None:
    """Raises DshpcError where nobody else's process can be begun."""
    why = ""
    if os.geteuid() != 0:
        why = "It would have to act as each user who logs in, which takes root."
    elif machine.which("setpriv") is None:
        why = "It acts as others by setpriv (util-linux), which is not installed."
    elif sys.platform != "linux":
        why = "That needs Linux."
    if why:
        raise DshpcError(
            "The dashboard cannot be opened to other machines by this user.",
            why,
            (
                "As root: sudo dshpc dashboard --listen ...",
                "Or leave --listen out, and come by ssh: ssh -L 8410:127.0.0.1:8410 HOST",
            ),
        )
