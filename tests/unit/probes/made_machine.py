"""A machine of a few made-up files and commands, for probes that look at sysfs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult, Read, Reply
from dshpc_setup.machine.local import LocalMachine


class MadeMachine(LocalMachine):
    """`files`: path -> text, None for one that may not be read; `links`: path -> target."""

    def __init__(
        self,
        files: Mapping[str, str | None] | None = None,
        *,
        links: Mapping[str, str] | None = None,
        devices: Sequence[str] = (),
        commands: Mapping[str, CommandResult] | None = None,
        library: Reply | None = None,
    ) -> None:
        super().__init__("/nonexistent")
        self.files, self.links, self.devices = dict(files or {}), dict(links or {}), set(devices)
        self.commands, self.library = dict(commands or {}), library
        self.asked: list[tuple[str, ...]] = []
        self._names = {*self.files, *self.links, *self.devices}

    @property
    def env(self) -> Mapping[str, str]:
        return {}

    def read(self, path: str) -> Read:
        if path not in self.files:
            return Read("absent")
        text = self.files[path]
        return Read("denied") if text is None else Read("present", text)

    def exists(self, path: str) -> bool:
        return any(name == path or name.startswith(f"{path}/") for name in self._names)

    def listdir(self, path: str) -> tuple[str, ...]:
        inside = f"{path}/"
        found = (name[len(inside) :] for name in self._names if name.startswith(inside))
        return tuple(sorted({name.split("/")[0] for name in found}))

    def readlink(self, path: str) -> str | None:
        return self.links.get(path)

    def is_device(self, path: str) -> bool:
        return path in self.devices

    def group_of(self, path: str) -> int | None:
        return 109 if path in self._names else None

    def access(self, path: str) -> State:
        return "present" if path in self._names else "absent"

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.commands else None

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
        self.asked.append(tuple(argv))
        return self.commands[argv[0].removeprefix("/usr/bin/")]

    def amdsmi(self, deadline_s: float) -> Reply:
        return self.library or Reply("absent", None, "libamd_smi.so", "it is not there")


def printed(text: Any, code: int = 0, stderr: str = "") -> CommandResult:
    """A tool that came to its end."""
    return CommandResult(("tool",), "present", code, text, stderr, 1.0)
