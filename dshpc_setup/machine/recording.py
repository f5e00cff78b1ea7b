"""A machine that writes down what it is asked and what it answers, to be replayed later.

Probes ask in processes of their own, so what one was asked comes back with its answer, and bit by
bit: what a process learned before it hung is kept, and the call in which it hung is known.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dshpc_setup.facts import State
from dshpc_setup.machine import Binary, CommandResult, Ended, Machine, Read, Reply, Say
from dshpc_setup.machine.log import KERNEL_LOG, Kind, Log, Note
from dshpc_setup.machine.tree import NO_PROGRAM

_MOST_LINKS = 40

# Links that lead each process somewhere else: what is in them is kept under the name that was asked.
_OWN = ("/proc/self", "/proc/thread-self")

# Of these folders, what has to do with GPUs; the rest is nobody's business.
_OF_INTEREST = {
    "/dev": re.compile(
        r"nv|dri$|kfd$|dxg$|accel|card|render|vfio|fuse$|kvm$|null$|infiniband|gdrdrv|mali|tegra"
    ),
    "/var/lib/dpkg/info": re.compile(r".*(?:nvidia|cuda|amdgpu|rocm|radeon|intel-|level-zero|xpu)"),
}


class RecordingMachine:
    """`base`, with everything that it was asked in `log`."""

    def __init__(self, base: Machine) -> None:
        self.base = base
        self.log = Log()
        self._links: dict[str, str | None] = {}
        self._tell: Callable[[Note], None] | None = None  # where we are asked in a child

    def _note(self, kind: Kind, key: Any, answer: Any = None, *, asked: bool = False) -> None:
        self._add(Note(kind, key, answer, asked))

    def _add(self, note: Note) -> None:
        self.log.add(note)
        if self._tell is not None:
            self._tell(note)

    # -- what is no question -------------------------------------------------------------------

    @property
    def env(self) -> Mapping[str, str]:
        return self.base.env

    @property
    def system(self) -> tuple[str, str, str]:
        return self.base.system

    @property
    def uid(self) -> int:
        return self.base.uid

    @property
    def simulated(self) -> str | None:
        return self.base.simulated

    def clock(self) -> float:
        return self.base.clock()

    # -- files ---------------------------------------------------------------------------------

    def _link(self, path: str) -> str | None:
        """Where the link leads, kept: every path of a folder goes through the same ones."""
        if path in _OWN:
            return None
        if path not in self._links:
            target = self._links[path] = self.base.readlink(path)
            if target is not None:
                self._note("link", path, target)
        return self._links[path]

    def _real(self, path: str, *, last: bool = True) -> str:
        """The path with all links followed; without `last`, not the one that it may be itself."""
        rest = posixpath.normpath(path).split("/")[1:]
        done, followed = "/", 0
        while rest:
            here = posixpath.join(done, rest.pop(0))
            target = self._link(here) if rest or last else None
            if target is None or followed >= _MOST_LINKS:
                done = here
                continue
            followed += 1
            led = posixpath.normpath(posixpath.join(done, target))
            rest = [part for part in led.split("/") if part] + rest
            done = "/"
        return done

    def read(self, path: str) -> Read:
        real = self._real(path)
        self._note("read", real, asked=True)
        found = self.base.read(path)
        self._note("read", real, found)
        return found

    def binary(self, path: str) -> Binary:
        found = self.base.binary(path)
        if found.state == "denied":
            self.access(path)
        elif found.state != "absent":
            self.exists(path)
            real = self._real(path)
            self._note("there", real, (real,))
            if found.state != "error":
                self._note("architecture", real, found.architecture or NO_PROGRAM)
        return found

    def exists(self, path: str) -> bool:
        found = self.base.exists(path)
        if found:
            real = self._real(path, last=False)
            if self._link(real) is None:
                self._note("there", real, (real,))
        return found

    def listdir(self, path: str) -> tuple[str, ...]:
        names = self.base.listdir(path)
        real = self._real(path)
        wanted = _OF_INTEREST.get(real)
        kept = [name for name in names if wanted is None or wanted.match(name)]
        if not kept and self.base.exists(path):
            self._note("there", real, (real,))
        for name in kept:
            child = posixpath.join(real, name)
            if self._link(child) is None and self.base.is_device(posixpath.join(path, name)):
                self.is_device(child)
                self.group_of(child)
        self._note("there", real, tuple(posixpath.join(real, name) for name in kept))
        return names

    def readlink(self, path: str) -> str | None:
        found = self.base.readlink(path)
        if found is not None:
            real = self._real(path, last=False)
            if real in _OWN:
                self._note("there", real, (real,))
            else:
                self._link(real)
        return found

    def is_device(self, path: str) -> bool:
        found = self.base.is_device(path)
        if found:
            self._note("device", self._real(path))
        return found

    def group_of(self, path: str) -> int | None:
        found = self.base.group_of(path)
        if found is not None:
            self._note("group", self._real(path), found)
        return found

    def device_number(self, path: str) -> tuple[int, int] | None:
        found = self.base.device_number(path)
        if found is not None:
            real = self._real(path)
            self._note("device", real)
            self._note("number", real, found)
        return found

    def changed(self, path: str) -> float | None:
        found = self.base.changed(path)
        if found is not None and found >= 0:
            self._note("changed", self._real(path), found)
        return found

    def disk_mib(self, path: str) -> int | None:
        found = self.base.disk_mib(path)
        if found is not None:
            self._note("disk", posixpath.normpath(path), found)
        return found

    def access(self, path: str) -> State:
        real = self._real(path)
        self._note("access", real, asked=True)
        found = self.base.access(path)
        self._note("access", real, found)
        return found

    # -- commands ------------------------------------------------------------------------------

    def which(self, program: str) -> str | None:
        found = self.base.which(program)
        if "/" in program:
            self.exists(program)
        elif program not in {argv[0] for argv in KERNEL_LOG}:
            self._note("which", program, found)
        return found

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
        asked = tuple(argv)
        if asked in KERNEL_LOG:
            return self.base.run(argv, deadline_s=deadline_s, stdin=stdin, env=env, cwd=cwd)
        never = CommandResult(asked, "timeout", None, "", "", deadline_s * 1000)
        self._note("run", asked, never, asked=True)
        found = self.base.run(
            argv, deadline_s=deadline_s, stdin=stdin, env=env, cwd=cwd, on_line=on_line
        )
        self._note("run", asked, found)
        return found

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        return self.base.start_daemon(argv, log=log)

    # -- several at once -----------------------------------------------------------------------

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        ended = self.base.apart(
            {name: self._telling(question) for name, question in questions.items()},
            deadline_s=deadline_s,
            meanwhile=meanwhile,
            on_item=on_item,
        )
        return {name: self._taken(end) for name, end in ended.items()}

    def _telling(self, question: Callable[[Say], None]) -> Callable[[Say], None]:
        def ask(say: Say) -> None:
            before, self._tell = self._tell, say
            try:
                question(say)
            finally:
                self._tell = before

        return ask

    def _taken(self, end: Ended) -> Ended:
        items = []
        for item in end.items:
            if isinstance(item, Note):
                self._add(item)
            else:
                items.append(item)
        return replace(end, items=tuple(items))

    # -- libraries and APIs --------------------------------------------------------------------

    def _reply(self, question: str, ask: Callable[[float], Reply], deadline_s: float) -> Reply:
        never = Reply("timeout", None, question, f"no answer within {deadline_s:g} s")
        self._note("reply", question, never, asked=True)
        found = ask(deadline_s)
        self._note("reply", question, found)
        return found

    def nvml(self, deadline_s: float) -> Reply:
        return self._reply("nvml", self.base.nvml, deadline_s)

    def nvml_readings(self, deadline_s: float) -> Reply:
        return self._reply("nvml_readings", self.base.nvml_readings, deadline_s)

    def amdsmi(self, deadline_s: float) -> Reply:
        return self._reply("amdsmi", self.base.amdsmi, deadline_s)

    def docker(self, deadline_s: float) -> Reply:
        return self._reply("docker", self.base.docker, deadline_s)
