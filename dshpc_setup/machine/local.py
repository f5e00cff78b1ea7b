"""The machine we run on."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dshpc_setup.machine import Binary, CommandResult, Ended, Read, Reply, Say, elf

if TYPE_CHECKING:
    from dshpc_setup.facts import State

# No file that we read is larger; /proc and /sys files have no size, and /proc/sys refuses to be asked
# for 4 MiB and more at once.
_MOST_BYTES = (4 << 20) - (1 << 16)
_PROGRAMS = (elf.MAGIC, b"\xcf\xfa\xed\xfe")  # how binaries of Linux and macOS begin
_MOST_LINKS = 40  # as the kernel has it
_NOT_THE_TREES = (
    "the engine of this machine is not that of the tree under --root; DOCKER_HOST or DOCKER_CONTEXT "
    "names one to ask"
)
# What an engine or Kubernetes tells the processes of a container: of a tree it says nothing.
_OF_OUR_CONTAINER = ("container", "KUBERNETES_SERVICE_HOST")


class LocalMachine:
    """The machine itself, or the tree of another one that lies under `root`.

    With a `root` other than "/" every file, and what the kernel and the processor are called, comes
    from the tree alone, and no link leads out of it. Commands and libraries are those of the machine
    that we run on, found by its environment. Its Docker engine is not the tree's, and is asked only
    where DOCKER_HOST or DOCKER_CONTEXT names one.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root.rstrip("/")

    @cached_property
    def env(self) -> Mapping[str, str]:
        if not self.root:
            return os.environ
        return {key: value for key, value in os.environ.items() if key not in _OF_OUR_CONTAINER}

    @cached_property
    def system(self) -> tuple[str, str, str]:
        if self.root:
            return "Linux", self._release(), self._line("/proc/sys/kernel/arch")
        name = os.uname()
        return name.sysname, name.release, name.machine

    def _release(self) -> str:
        words = self._line("/proc/version").split()  # "Linux version 6.8.0-60-generic (..."
        told = words[2] if words[:2] == ["Linux", "version"] and len(words) > 2 else ""
        return self._line("/proc/sys/kernel/osrelease") or told

    def _line(self, path: str) -> str:
        return (self.read(path).text or "").strip().partition("\n")[0]

    @property
    def uid(self) -> int:
        return os.geteuid()

    @property
    def simulated(self) -> str | None:
        return None

    def _at(self, path: str, *, follow: bool = True) -> str:
        """Where it lies; under another root with links resolved as if that were "/".

        Without `follow` the last link in it is left for the caller to see.
        """
        if not self.root:
            return path
        left = [part for part in reversed(path.split("/")) if part]
        found: list[str] = []
        links = 0
        while left:
            part = left.pop()
            if part in (".", ".."):
                del found[-1 if part == ".." else len(found) :]
                continue
            here = "/".join((self.root, *found, part))
            target = self._link(here) if left or follow else None
            if target is None:
                found.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                found.clear()
            left += [name for name in reversed(target.split("/")) if name]
        return "/".join((self.root, *found))

    @staticmethod
    def _link(path: str) -> str | None:
        try:
            return os.readlink(path)
        except (OSError, ValueError):
            return None

    def read(self, path: str) -> Read:
        try:
            where = self._at(path)
            # Opening a pipe waits for a writer, opening a device may do anything.
            mode = os.stat(where).st_mode
            if stat.S_ISDIR(mode):
                os.close(os.open(where, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                return Read("error", detail="a folder")
            if not stat.S_ISREG(mode):
                return Read("error", detail="not a regular file")
            with open(where, "rb") as file:
                head = file.read(4)
                if head in _PROGRAMS:
                    return Read("error", detail="a program, and no text")
                return Read("present", (head + file.read(_MOST_BYTES)).decode(errors="replace"))
        except (FileNotFoundError, NotADirectoryError):
            return Read("absent")
        except PermissionError as error:
            return Read("denied", detail=str(error))
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            return Read("error", detail=str(error))

    def binary(self, path: str) -> Binary:
        try:
            where = self._at(path)
            if not stat.S_ISREG(os.stat(where).st_mode):
                return Binary("unsupported")
            with open(where, "rb") as file:
                found = elf.architecture_of(file.read(elf.HEAD_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            return Binary("absent")
        except PermissionError:
            return Binary("denied")
        except (OSError, ValueError):
            return Binary("error")
        return Binary("present" if found else "unsupported", found)

    def exists(self, path: str) -> bool:
        try:
            return os.path.lexists(self._at(path, follow=False))
        except (OSError, ValueError):
            return False

    def listdir(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(os.listdir(self._at(path))))
        except (OSError, ValueError):
            return ()

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(self._at(path, follow=False))
        except (OSError, ValueError):
            return None

    def is_device(self, path: str) -> bool:
        try:
            return stat.S_ISCHR(os.stat(self._at(path)).st_mode)
        except (OSError, ValueError):
            return False

    def group_of(self, path: str) -> int | None:
        try:
            return os.stat(self._at(path)).st_gid
        except (OSError, ValueError):
            return None

    def device_number(self, path: str) -> tuple[int, int] | None:
        try:
            found = os.stat(self._at(path))
        except (OSError, ValueError):
            return None
        number = os.major(found.st_rdev), os.minor(found.st_rdev)
        return number if stat.S_ISCHR(found.st_mode) else None

    def changed(self, path: str) -> float | None:
        try:
            return os.stat(self._at(path)).st_ctime
        except (OSError, ValueError):
            return None

    def disk_mib(self, path: str) -> int | None:
        try:
            found = os.statvfs(self._at(path))
        except (OSError, ValueError):
            return None
        return found.f_blocks * found.f_frsize >> 20 or None

    def access(self, path: str) -> State:
        try:
            os.close(os.open(self._at(path), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except FileNotFoundError:
            return "absent"
        except PermissionError:
            return "denied"
        except (OSError, ValueError):
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
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        from dshpc_setup.machine import workers

        return workers.ask(questions, deadline_s, meanwhile, on_item)

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

        if self.root and not any(os.environ.get(name) for name in docker_api.CHOICE):
            return Reply("unsupported", None, "docker", _NOT_THE_TREES)
        return docker_api.ask(deadline_s)

    def clock(self) -> float:
        return time.monotonic()
