"""A machine made of plain values: commands are answered by the first matching prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dshpc_setup.facts import Cpu, Engine, Gpus, HostFacts, Memory, Platform, PlatformKind, State
from dshpc_setup.machine import Binary, CommandResult, Ended, Read, Reply, Say, workers


@dataclass
class Answer:
    """How a command ends; several for one prefix are given one after the other, the last stays."""

    stdout: str = ""
    code: int | None = 0
    stderr: str = ""
    state: State = "present"


Answers = Answer | list[Answer] | Callable[[tuple[str, ...]], Answer]


class Unknown(BaseException):
    """A command nobody told this machine about; no product code can swallow it."""


@dataclass
class FakeMachine:
    """Implements `dshpc_setup.machine.Machine`; `ran` holds every command line in order."""

    uid: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    system: tuple[str, str, str] = ("Linux", "6.1.0", "x86_64")
    programs: set[str] = field(default_factory=set)
    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    commands: dict[str, Answers] = field(default_factory=dict)
    daemon_pid: int = 77
    ran: list[tuple[str, ...]] = field(default_factory=list)
    daemons: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    environments: list[Mapping[str, str] | None] = field(default_factory=list)
    now: float = 0.0
    simulated: str | None = None

    def read(self, path: str) -> Read:
        text = self.files.get(path)
        return Read("absent") if text is None else Read("present", text)

    def binary(self, path: str) -> Binary:
        return Binary("unsupported" if path in self.files else "absent")

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.links

    def listdir(self, path: str) -> tuple[str, ...]:
        inside = (name for name in self.files if name.startswith(path + "/"))
        return tuple(sorted({name[len(path) + 1 :].split("/")[0] for name in inside}))

    def readlink(self, path: str) -> str | None:
        return self.links.get(path)

    def is_device(self, path: str) -> bool:
        return False

    def group_of(self, path: str) -> int | None:
        return 0 if path in self.files else None

    def device_number(self, path: str) -> tuple[int, int] | None:
        return None

    def changed(self, path: str) -> float | None:
        return None

    def disk_mib(self, path: str) -> int | None:
        return None

    def access(self, path: str) -> State:
        return "present" if path in self.files else "absent"

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self.programs else None

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
        command = tuple(argv)
        assert deadline_s > 0
        self.ran.append(command)
        self.environments.append(env)
        if command[0] == "sleep":
            self.now += float(command[1])
            return CommandResult(command, "present", 0, "", "", 1.0)
        line = " ".join(command)
        for prefix, answers in self.commands.items():
            if line.startswith(prefix):
                given = self._next(answers, command)
                for text in given.stdout.splitlines() if on_line else ():
                    assert on_line is not None
                    on_line(text)
                code = given.code if given.state == "present" else None
                return CommandResult(command, given.state, code, given.stdout, given.stderr, 1.0)
        raise Unknown(line)

    @staticmethod
    def _next(answers: Answers, command: tuple[str, ...]) -> Answer:
        if callable(answers):
            return answers(command)
        if isinstance(answers, list):
            return answers.pop(0) if len(answers) > 1 else answers[0]
        return answers

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        self.daemons.append((tuple(argv), log))
        return self.daemon_pid

    def nvml(self, deadline_s: float) -> Reply:
        raise Unknown("nvml")

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
        raise Unknown("amdsmi")

    def docker(self, deadline_s: float) -> Reply:
        raise Unknown("docker")

    def clock(self) -> float:
        self.now += 0.001
        return self.now

    def lines(self, word: str = "") -> list[str]:
        """The commands that hold `word`, as one text each."""
        return [line for line in (" ".join(each) for each in self.ran) if word in line]


@dataclass
class Listener:
    """A `Reporter` that keeps what it hears and answers every question with `answer`."""

    answer: bool = True
    by_yes: bool = False  # `answer` is that of --yes, without a terminal
    heard: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)

    def progress(self, text: str) -> None:
        self.heard.append(text)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def ask(self, question: str, *, by_yes: bool = True) -> bool:
        self.questions.append(question)
        return self.answer and (by_yes or not self.by_yes)


def facts(
    engine: Engine, kind: PlatformKind = "linux", os_id: str = "debian", *os_like: str
) -> HostFacts:
    platform = Platform(kind, os_id=os_id, os_like=os_like)
    return HostFacts(platform, Cpu(4), Memory(8000, 7000), Gpus("absent"), engine)


def apt_lists(*names: str) -> Callable[[tuple[str, ...]], Answer]:
    """What `apt-cache policy NAME` says where the lists hold just these packages."""

    def answer(command: tuple[str, ...]) -> Answer:
        name = command[-1]
        if name not in names:
            return Answer()  # apt-cache says nothing about what it does not know, and 0
        return Answer(f"{name}:\n  Installed: (none)\n  Candidate: 1.2\n  Version table:\n")

    return answer
