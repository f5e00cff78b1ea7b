"""The machine we run on."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult, Ended, Read, Reply, Say

_MOST_BYTES = 4 << 20  # no file that we read is larger; /proc and /sys files have no size


class LocalMachine:
    """`root` other than "/" reads files under it; commands and libraries are the host's."""

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")

    @property
    def env(self) -> Mapping[str, str]:
        return os.environ

    @cached_property
    def system(self) -> tuple[str, str, str]:
        name = os.uname()
        return name.sysname, name.release, name.machine

    @property
    def uid(self) -> int:
        return os.geteuid()

    @property
    def simulated(self) -> str | None:
        return None

    def _at(self, path: str) -> str:
        return f"{self.root}{path}"

    def read(self, path: str) -> Read:
        try:
            with open(self._at(path), "rb") as file:
                return Read("present", file.read(_MOST_BYTES).decode(errors="replace"))
        except (FileNotFoundError, NotADirectoryError):
            return Read("absent")
        except PermissionError as error:
            return Read("denied", detail=str(error))
        except OSError as error:
            return Read("error", detail=str(error))

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._at(path))

    def listdir(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self._at(path))))
        except OSError:
            return ()

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(self._at(path))
        except OSError:
            return None

    def is_device(self, path: str) -> bool:
        try:
            return stat.S_ISCHR(os.stat(self._at(path)).st_mode)
        except OSError:
            return False

    def group_of(self, path: str) -> int | None:
        try:
            return os.stat(self._at(path)).st_gid
        except OSError:
            return None

    def access(self, path: str) -> State:
        try:
            os.close(os.open(self._at(path), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except FileNotFoundError:
            return "absent"
        except PermissionError:
            return "denied"
        except OSError:
            return "error"
        return "present"

    def which(self, program: str) -> str | None:
        import shutil  # ten milliseconds, which the container's start has no use for

        return shutil.which(program)

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
        from dshpc_setup.machine import commands

        return commands.run(
            argv,
            deadline_s=deadline_s,
            stdin=stdin,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            on_line=on_line,
        )

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        import subprocess

        with open(log, "ab") as file:
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                cwd="/",
            )
        return child.pid

    def apart(
        self, questions: Mapping[str, Callable[[Say], None]], *, deadline_s: float
    ) -> Mapping[str, Ended]:
        from dshpc_setup.machine import apart

        return apart.ask(questions, deadline_s)

    def nvml(self, deadline_s: float) -> Reply:
        from dshpc_setup.machine import nvml

        return nvml.ask(self, deadline_s)

    def nvml_readings(self, deadline_s: float) -> Reply:
        from dshpc_setup.machine import nvml

        return nvml.ask_readings(self, deadline_s)

    def amdsmi(self, deadline_s: float) -> Reply:
        from dshpc_setup.machine import amdsmi

        return amdsmi.ask(self, deadline_s)

    def docker(self, deadline_s: float) -> Reply:
        from dshpc_setup.machine import docker_api

        return docker_api.ask(deadline_s)

    def clock(self) -> float:
        return time.monotonic()
