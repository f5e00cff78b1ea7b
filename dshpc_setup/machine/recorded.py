"""A machine as a folder: what was captured, or written by hand, answers in place of the real one.

    machine.yaml    format, system, release, machine, uid, env, programs, disks, origin, a remark
    root.txtar      the files: see machine/tree.py
    commands.yaml   a list of {argv, code, stdout, stderr} or {argv, state: absent|denied|timeout}
    nvml.json       {"state", "value", "code", "detail", "source"}; no file: there is no such library
    nvml-readings.json, amdsmi.json, docker.json    the same
    kernel.log      what `dmesg` or `journalctl --dmesg` printed, or a part of it; with times or without

`programs` says where the commands are ({docker: /usr/bin/docker, rocm-smi: null}); without it, those
that answer are in /usr/bin, and there are no others. YAML and not TOML: Python 3.10 reads no TOML by
itself, and nothing here writes it.

`disks` says how large the file systems are that hold the paths that were asked about, in MiB
({/tmp: 102400}); of others it is not known.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import State
from dshpc_setup.machine import Binary, CommandResult, Ended, Read, Reply, Say, folder, workers
from dshpc_setup.machine.log import KERNEL_LOG
from dshpc_setup.machine.tree import NO_PROGRAM, Tree, parse_tree, write_tree

__all__ = ["RecordedMachine", "Tree", "Unrecorded", "parse_tree", "write_tree"]

_MOST_LINKS = 40


class Unrecorded(BaseException):
    """The machine was asked something that its folder does not answer.

    No Exception: a probe that survives every failure must not survive this one.
    """

    def told(self) -> DshpcError:
        """The same for people."""
        return DshpcError(
            "The recorded machine cannot answer everything that was asked.",
            f"{self}. It was recorded by another version of dshpc.",
            ("Record the machine again: dshpc record DIR",),
        )


class _Hung(BaseException):
    """What was read here never ended on the real machine."""


class RecordedMachine:
    """Replays `folder`; all of it is read here.

    Raises DshpcError where the folder is no machine, naming the file and what is wrong with it.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = Path(path)
        self._about = folder.read_about(self.folder)
        self.tree = folder.read_root(self.folder)
        self._known = self.tree.names()
        self._children = _children(self._known)
        self._commands = folder.read_commands(self.folder)
        self.kernel_log = folder.read_kernel_log(self.folder)
        self._replies = {name: folder.read_reply(self.folder, name) for name in folder.REPLIES}

    @property
    def env(self) -> Mapping[str, str]:
        return self._about.env

    @property
    def system(self) -> tuple[str, str, str]:
        return self._about.system, self._about.release, self._about.machine

    @property
    def uid(self) -> int:
        return self._about.uid

    @property
    def simulated(self) -> str | None:
        return None

    def _resolve(self, path: str) -> str:
        """With links followed, as far as they lead to something recorded."""
        path = posixpath.normpath(path)
        for _ in range(_MOST_LINKS):
            parts = path.split("/")
            for length in range(len(parts), 1, -1):
                head = "/".join(parts[:length])
                if head in self.tree.links:
                    base = posixpath.dirname(head)
                    target = posixpath.normpath(posixpath.join(base, self.tree.links[head]))
                    path = "/".join([target.rstrip("/"), *parts[length:]])
                    break
            else:
                return path
        return path

    def _at(self, path: str) -> str:
        """The thing itself, should it be a link: the links on the way to it followed."""
        folder_of, name = posixpath.split(posixpath.normpath(path))
        return posixpath.join(self._resolve(folder_of), name)

    def read(self, path: str) -> Read:
        path = self._resolve(path)
        tree = self.tree
        if path in tree.hangs:
            raise _Hung(path)
        if path in tree.denied:
            return Read("denied", detail=tree.denied[path] or "Permission denied")
        if path in tree.errors:
            return Read("error", detail=tree.errors[path] or "it cannot be read")
        if path in tree.texts:
            return Read("present", tree.texts[path])
        if path in tree.there and path not in self._children:
            raise Unrecorded(f"{self.folder / 'root.txtar'} does not hold what is in {path}")
        if path in tree.devices or path in self._children:
            return Read("error", detail="Is a directory" if path in self._children else "a device")
        return Read("absent")

    def binary(self, path: str) -> Binary:
        """Of a file of which no more is known than that it is there, it is taken for one."""
        path = self._resolve(path)
        if path in self.tree.denied or self.tree.access.get(path) == "denied":
            return Binary("denied")
        if path not in self._known and path not in self._children:
            return Binary("absent")
        if path in self.tree.there and path not in self._children:
            found = self.tree.architectures.get(path)
            return Binary("unsupported") if found == NO_PROGRAM else Binary("present", found)
        return Binary("unsupported")

    def exists(self, path: str) -> bool:
        path = self._at(path)
        return path == "/" or path in self._children or path in self._known

    def listdir(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._children.get(self._resolve(path), ())))

    def readlink(self, path: str) -> str | None:
        return self.tree.links.get(self._at(path))

    def is_device(self, path: str) -> bool:
        return self._resolve(path) in self.tree.devices

    def group_of(self, path: str) -> int | None:
        real = self._resolve(path)
        if real in self._known or real in self._children:
            return self.tree.groups.get(real, 0)
        return None

    def device_number(self, path: str) -> tuple[int, int] | None:
        return self.tree.numbers.get(self._resolve(path))

    def changed(self, path: str) -> float | None:
        return self.tree.changed.get(self._resolve(path))

    def disk_mib(self, path: str) -> int | None:
        return self._about.disks.get(posixpath.normpath(path))

    def access(self, path: str) -> State:
        real = self._resolve(path)
        if real not in self._known and real not in self._children:
            return "absent"
        if real in self.tree.hangs:
            raise _Hung(real)
        if real in self.tree.denied:
            return "denied"
        return self.tree.access.get(real, "present")

    def which(self, program: str) -> str | None:
        if "/" in program:
            return program if self.exists(program) else None
        if self._about.programs is not None:
            if program == KERNEL_LOG[1][0] and program not in self._about.programs:
                return None
            if program not in self._about.programs:
                where = self.folder / "machine.yaml"
                raise Unrecorded(f"{where} does not say under 'programs' where {program!r} is")
            return self._about.programs[program]
        known = any(
            argv[0] == program and found.state != "absent" for argv, found in self._commands.items()
        )
        return f"/usr/bin/{program}" if known else None

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
        del deadline_s, stdin, env, cwd
        result = self._answer(tuple(argv))
        for line in result.stdout.splitlines() if on_line else ():
            assert on_line is not None
            on_line(line)
        return result

    def _answer(self, argv: tuple[str, ...]) -> CommandResult:
        programs = self._about.programs or {}
        names = {path: name for name, path in programs.items() if path}
        short = names.get(argv[0], argv[0].removeprefix("/usr/bin/"))
        for asked in (argv, (short, *argv[1:])):
            if asked in self._commands:
                return self._commands[asked]
        if argv in KERNEL_LOG:
            return self._log(argv)
        if argv[0] in programs and programs[argv[0]] is None:
            return CommandResult(argv, "absent", None, "", f"{argv[0]}: not found", 1.0)
        where = self.folder / "commands.yaml"
        raise Unrecorded(f"{where} does not hold the command {list(argv)}")

    def _log(self, argv: tuple[str, ...]) -> CommandResult:
        """The kernel's log as kernel.log has it; where there is none, it was not asked for."""
        if self.kernel_log is None:
            return CommandResult(argv, "absent", None, "", "no kernel.log was recorded", 1.0)
        return CommandResult(argv, "present", 0, self.kernel_log, "", 1.0)

    def has_command(self, *argv: str) -> bool:
        """Whether the command was recorded, whatever came of it."""
        return argv in self._commands

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        raise Unrecorded(
            f"a recorded machine starts nothing, and was asked to: {list(argv)} > {log}"
        )

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        hung: list[str] = []

        def guarded(name: str, question: Callable[[Say], None]) -> Callable[[Say], None]:
            def ask(say: Say) -> None:
                try:
                    question(say)
                except _Hung:
                    hung.append(name)

            return ask

        asked = {name: guarded(name, question) for name, question in questions.items()}
        ended = dict(workers.in_place(asked, meanwhile, on_item))
        why = f"no answer within {deadline_s:g} s"
        for name in hung:
            ended[name] = Ended("timeout", ended[name].items, why, ended[name].ms)
        return ended

    def nvml(self, deadline_s: float) -> Reply:
        return self._replies["nvml"]

    def nvml_readings(self, deadline_s: float) -> Reply:
        reply = self._replies["nvml_readings"]
        if reply.state == "absent" and self._replies["nvml"].state == "present":
            # The library is there: its measurements are not in the folder, so no tool is asked
            return Reply("unsupported", None, reply.source, "no measurements were recorded", 3)
        return reply

    def amdsmi(self, deadline_s: float) -> Reply:
        return self._replies["amdsmi"]

    def docker(self, deadline_s: float) -> Reply:
        return self._replies["docker"]

    def clock(self) -> float:
        return time.monotonic()


def _children(paths: Iterable[str]) -> dict[str, set[str]]:
    """Folder -> names in it, for every folder on the way to something that is there."""
    found: dict[str, set[str]] = {}
    for path in paths:
        rest = path
        while rest != "/":
            rest, name = posixpath.split(rest)
            names = found.setdefault(rest, set())
            if name in names:
                break
            names.add(name)
    return found
