"""The door to the world: the protocol that probes, passthrough, image and engine code speak.

Nothing outside this package starts a process, opens a socket or loads a vendor library. Every call
that can hang takes a deadline in seconds. Absence is an answer (a state), not an exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # whose dataclasses take ten milliseconds, and who only asks a command needs none
    from dshpc_setup.facts import State


def since_ms(started: float) -> float:
    """Milliseconds since a time of `time.monotonic`."""
    return round((time.monotonic() - started) * 1000, 1)


@dataclass(frozen=True)
class Read:
    """A file's text: `text` is None unless `state` is `present`."""

    state: State  # present | absent | denied | error
    text: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class Binary:
    """What a program or a library is for; `unsupported`: it is no ELF file, as a script is none."""

    state: State  # present | absent | denied | unsupported | error
    architecture: str | None = None  # as `uname -m` has it; None of a `present` one: not known


@dataclass(frozen=True)
class CommandResult:
    """How a command ended. `code` is None unless it ran to its end (`state` is `present`).

    `absent`: no such program; `denied`: not executable; `timeout`: killed at its deadline; `error`:
    killed because it never stopped printing.
    """

    argv: tuple[str, ...]
    state: State
    code: int | None
    stdout: str
    stderr: str
    ms: float

    @property
    def ok(self) -> bool:
        return self.state == "present" and self.code == 0

    @property
    def text(self) -> str:
        """Both streams, for error messages."""
        return "\n".join(part for part in (self.stderr.strip(), self.stdout.strip()) if part)


@dataclass(frozen=True)
class Reply:
    """An answer of a library or an API: plain JSON values in `value` where `present`."""

    state: State
    value: Any = None
    source: str = ""
    detail: str | None = None
    code: int | None = None  # the library's own error number


Say = Callable[[Any], None]
"""What a question calls with each item of its answer, as it learns it."""


@dataclass(frozen=True)
class Ended:
    """How a question that was asked apart ended: `present` where it came to its end."""

    state: State  # present | timeout | error
    items: tuple[Any, ...]  # what it said, also before it was killed or crashed
    detail: str | None
    ms: float


def earlier(deadline_s: float, by_s: float = 0.4) -> float:
    """The deadline of what is asked apart: its own report of a timeout says more than ours.

    By default earlier by what the killing of a tool takes; half the time where there is less.
    """
    return max(deadline_s / 2, deadline_s - by_s)


class Machine(Protocol):
    """A machine to look at and to act on; `LocalMachine` is the real one."""

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def system(self) -> tuple[str, str, str]:
        """`uname`: (system "Linux"|"Darwin", release, machine)."""
        ...

    @property
    def uid(self) -> int: ...

    @property
    def simulated(self) -> str | None:
        """The profile of the made-up GPUs that this machine shows; None where all is real."""
        ...

    # files; paths are absolute ("/proc/meminfo") and read under the machine's root
    def read(self, path: str) -> Read:
        """Its text; of a folder, `denied` where it may not be listed and else `error`."""
        ...

    def binary(self, path: str) -> Binary:
        """What a program or a library is for, links followed."""
        ...

    def exists(self, path: str) -> bool: ...
    def listdir(self, path: str) -> tuple[str, ...]:
        """Sorted names; empty where the folder is absent or may not be read."""
        ...

    def readlink(self, path: str) -> str | None: ...
    def is_device(self, path: str) -> bool:
        """Whether it is a character device node."""
        ...

    def group_of(self, path: str) -> int | None:
        """Numeric group id of the file, None where it is absent."""
        ...

    def device_number(self, path: str) -> tuple[int, int] | None:
        """(major, minor) of a character device node; None where it is none, or not known."""
        ...

    def changed(self, path: str) -> float | None:
        """When its content, owner or place last changed (ctime): seconds since the epoch.

        Of a link its target's; None where it is absent, or not known.
        """
        ...

    def disk_mib(self, path: str) -> int | None:
        """Size in MiB of the file system that holds it; None where it is absent, or not known."""
        ...

    def access(self, path: str) -> State:
        """Can this process open it for reading and writing: present | absent | denied | error."""
        ...

    # processes
    def which(self, program: str) -> str | None: ...
    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        """Run to the end or the deadline; never raises for what the command does.

        `env` is laid over the machine's own. With `on_line`, both streams are handed over line by
        line as they come (and kept). Stdin is closed unless given.
        """
        ...

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        """Start a program that outlives us, in its own session, its output added to `log`: the pid."""
        ...

    # several questions at once
    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        """Ask all at the same time, each in a process of its own, and end with the deadline.

        One that hangs, raises or crashes delays and harms no other. Items must be values that can
        be pickled. A machine that cannot hang (a recorded one) may ask in place. `meanwhile` is
        done here once all are asked, and may ask as well; signals wait for its end. `on_item` is
        given each item as it comes; it must not hang.
        """
        ...

    # libraries and APIs
    def nvml(self, deadline_s: float) -> Reply:
        """What NVML says, asked in a process of its own: see machine/nvml.py for the value."""
        ...

    def nvml_readings(self, deadline_s: float) -> Reply:
        """What NVML measures now (use, temperature, power): see machine/nvml.py for the value."""
        ...

    def amdsmi(self, deadline_s: float) -> Reply:
        """What pyrsmi says, asked in a process of its own: see machine/amdsmi.py for the value."""
        ...

    def docker(self, deadline_s: float) -> Reply:
        """{"version": ..., "info": ..., "host": endpoint} of the current context's engine."""
        ...

    def clock(self) -> float:
        """Seconds on a monotonic clock."""
        ...
