"""A machine made of dictionaries: files, environment, and replies by how a command begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform, State
from dshpc_setup.machine import Binary, CommandResult, Ended, Read, Reply, Say, workers

FACTS = HostFacts(
    Platform("linux", os_id="debian", os_version="12", arch="x86_64"),
    Cpu(4),
    Memory(8000, 8000),
    Gpus("absent"),
    Engine("present", kind="engine", arch="x86_64"),
)


def ended(stdout: str = "", *, code: int = 0, stderr: str = "") -> CommandResult:
    return CommandResult((), "present", code, stdout, stderr, 1.0)


TIMEOUT = CommandResult((), "timeout", None, "", "", 1.0)


@dataclass
class FakeMachine:
    """`replies`: beginning of a command line -> its replies, the last one again and again."""

    replies: dict[str, list[CommandResult]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    system: tuple[str, str, str] = ("Linux", "6.1", "x86_64")
    uid: int = 0
    missing: tuple[str, ...] = ()
    ran: list[tuple[str, ...]] = field(default_factory=list)
    envs: list[Mapping[str, str]] = field(default_factory=list)
    time: float = 0.0
    simulated: str | None = None

    def read(self, path: str) -> Read:
        text = self.files.get(path)
        return Read("absent") if text is None else Read("present", text)

    def binary(self, path: str) -> Binary:
        return Binary("unsupported" if path in self.files else "absent")

    def exists(self, path: str) -> bool:
        return path in self.files

    def listdir(self, path: str) -> tuple[str, ...]:
        folder = path.rstrip("/") + "/"
        return tuple(
            sorted({name[len(folder) :].split("/")[0] for name in self.files if folder in name})
        )

    def readlink(self, path: str) -> str | None:
        return None

    def is_device(self, path: str) -> bool:
        return False

    def group_of(self, path: str) -> int | None:
        return None

    def device_number(self, path: str) -> tuple[int, int] | None:
        return None

    def changed(self, path: str) -> float | None:
        return None

    def disk_mib(self, path: str) -> int | None:
        return None

    def access(self, path: str) -> State:
        return "absent"

    def which(self, program: str) -> str | None:
        return None if program in self.missing else f"/usr/bin/{program}"

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
        self.ran.append(tuple(argv))
        self.envs.append(env or {})
        line = " ".join(argv)
        for beginning, replies in self.replies.items():
            if line.startswith(beginning):
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                for text in reply.stdout.splitlines() if on_line else ():
                    assert on_line is not None
                    on_line(text)
                return reply
        raise AssertionError(f"no reply for: {line}")

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        raise AssertionError(f"no daemon expected: {argv}")

    def nvml(self, deadline_s: float) -> Reply:
        return Reply("absent")

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        return workers.in_place(questions, meanwhile, on_item)

    def nvml_readings(self, deadline_s: float) -> Reply:
        return Reply("absent")

    def amdsmi(self, deadline_s: float) -> Reply:
        return Reply("absent")

    def docker(self, deadline_s: float) -> Reply:
        return Reply("absent")

    def clock(self) -> float:
        self.time += 0.5
        return self.time
