"""A machine made of dictionaries: files, environment, and replies by how a command begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform
from dshpc_setup.machine import CommandResult
from tests.unit.engine import fake

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
class FakeMachine(fake.FakeMachine):
    """`replies`: beginning of a command line -> its replies, the last one again and again. Every program but
    those `missing` is there."""

    replies: dict[str, list[CommandResult]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

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
        self.environments.append(env or {})
        line = " ".join(argv)
        for beginning, replies in self.replies.items():
            if line.startswith(beginning):
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                for text in reply.stdout.splitlines() if on_line else ():
                    assert on_line is not None
                    on_line(text)
                return reply
        raise AssertionError(f"no reply for: {line}")

    def clock(self) -> float:
        self.now += 0.5
        return self.now
