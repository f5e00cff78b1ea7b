"""A machine on which `docker` is Podman, and what says that it cannot be."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest

from dshpc_setup import engine_client, engine_door
from dshpc_setup.machine import CommandResult, Read
from dshpc_setup.podman_client import door, trial
from tests.unit.podman_client.test_about import info

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             96364                96364                processes
Max open files            1024                 20000                files
Max locked memory         8388608              unlimited            bytes
"""


@dataclass
class Machine:
    """`answers`: by the word after `podman`: how it ends."""

    uid: int = 1000
    podman: bool = True
    info: Any = field(default_factory=info)
    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    words: list[list[str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    system: tuple[str, str, str] = ("Linux", "6.1.0", "x86_64")

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program != "podman" or self.podman else None

    def read(self, path: str) -> Read:
        texts = {"/proc/self/limits": LIMITS, "/proc/sys/kernel/pid_max": "32768\n"}
        return Read("present", texts[path])

    def run(self, argv: list[str], **_: Any) -> CommandResult:
        self.words.append(list(argv))
        if not self.podman:
            return CommandResult(tuple(argv), "absent", None, "", "", 1.0)
        at = engine_client.program_at(argv)
        verb = argv[at + 1]
        if verb == "info" and verb not in self.answers:
            return CommandResult(tuple(argv), "present", 0, json.dumps(self.info), "", 1.0)
        code, stderr = self.answers.get(verb, (0, ""))
        return CommandResult(tuple(argv), "present", code, "", stderr, 1.0)


def through(machine: Machine) -> Any:
    return engine_door.through(machine, "podman")  # type: ignore[arg-type]


def test_the_client_of_a_project() -> None:
    client = engine_client.of({"engine": "podman"})
    assert client.run_in("c", "true") == ["podman", "exec", "c", "true"]


def test_words_go_to_podman_and_come_back_as_they_were_asked() -> None:
    machine = Machine()
    seen = through(machine)
    done = seen.run(["docker", "stop", "--", "c"], deadline_s=1)
    assert machine.words == [["podman", "stop", "--", "c"]]
    assert done.argv == ("docker", "stop", "--", "c")
    seen.run(["env", "-u", "X", "docker", "ps"], deadline_s=1)
    assert machine.words[-1] == ["env", "-u", "X", "podman", "ps"]
    seen.run(["sh", "-c", "docker"], deadline_s=1)
    assert machine.words[-1] == ["sh", "-c", "docker"]
    assert seen.run(["docker", "context", "show"], deadline_s=1).stdout == "default\n"
    assert seen.run(["docker", "buildx", "version"], deadline_s=1).state == "absent"
    assert seen.run(["docker", "compose", "version"], deadline_s=1).stdout == "2.30.0\n"
    assert (seen.which("docker"), seen.which("docker-compose")) == ("docker", None)
    assert seen.which("git") == "/usr/bin/git"


def test_roots_containers_have_the_limits_that_root_has_here() -> None:
    machine = Machine(uid=0, info=info(rootless=False))
    through(machine).run(["docker", "run", "--rm", "i"], deadline_s=1)
    words = machine.words[-1]
    assert words[:6] == [
        "podman",
        "run",
        "--ulimit",
        "nofile=20000:20000",
        "--ulimit",
        "nproc=32768:32768",
    ]


def test_what_it_says_of_itself() -> None:
    assert through(Machine()).docker(1).state == "present"
    gone = through(Machine(podman=False)).docker(1)
    assert (gone.state, gone.source, gone.detail) == (
        "absent", "podman", "the program podman is not in PATH",
    )  # fmt: skip
    broken = through(Machine(answers={"info": (125, "Error: no")})).docker(1)
    assert (broken.state, broken.detail) == ("error", "Error: no")
    assert through(Machine(info=[])).docker(1).state == "error"


def why_not(machine: Machine) -> Any:
    return trial.why_not(machine)  # type: ignore[arg-type]


def test_where_it_works() -> None:
    machine = Machine()
    assert why_not(machine) is None
    verbs = [words[1] for words in machine.words]
    assert verbs == ["info", "import", "run", "rmi"]
    assert "1000:0:1" in machine.words[2]


def _old() -> dict[str, Any]:
    return {**info(), "version": {"Version": "3.4.4"}}


@pytest.mark.parametrize(
    ("machine", "brief", "todo"),
    [
        (Machine(podman=False), "Podman is not installed.", "apt-get install podman"),
        (Machine(answers={"info": (125, "Error: odd")}), "Podman does not answer.", "podman info"),
        (Machine(info=_old()), "Podman 3.4.4 is too old.", "Install Podman 4.3"),
        (Machine(info=info(serviceIsRemote=True)), "The podman command speaks to a Podman elsewhere.",
         "unset CONTAINER_HOST"),
        (Machine(info=info(idMappings={"uidmap": [{"size": 1}], "gidmap": [{"size": 1}]})),
         "Podman has no range of user ids for you.", "--add-subuids"),
        (Machine(answers={"info": (125, 'exec: "newuidmap": executable file not found in $PATH')}),
         "Podman does not answer.", "uidmap"),
        (Machine(answers={"run": (126, "Error: crun: cgroups in hybrid mode not supported")}),
         "Podman cannot start a container here.", "runc"),
        (Machine(answers={"run": (126, 'Error: slirp4netns failed: "open(\\"/dev/net/tun\\"): Permission '
                                       'denied')}),
         "Podman cannot start a container here.", "chmod 666 /dev/net/tun"),
        (Machine(answers={"import": (125, "Error: no space left on device")}),
         "Podman cannot make an image.", "podman info"),
    ],
)  # fmt: skip
def test_where_it_does_not(machine: Machine, brief: str, todo: str) -> None:
    refused = why_not(machine)
    assert refused.brief == brief
    assert any(todo in step for step in refused.resolution)
    assert any("--engine" in step for step in refused.resolution)


def test_a_program_of_a_few_bytes() -> None:
    program = trial.smallest_program("x86_64")
    assert program is not None
    assert program[:4] == b"\x7fELF"
    (entry,) = struct.unpack_from("<Q", program, 24)
    assert program[entry - 0x400000 :] == bytes.fromhex("31ffb83c0000000f05")
    assert trial.smallest_program("riscv64") is None


def test_what_is_asked_has_a_deadline_of_its_own() -> None:
    asked: list[float] = []

    class Slow(Machine):
        def run(self, argv: list[str], **more: Any) -> CommandResult:
            asked.append(more["deadline_s"])
            return CommandResult(tuple(argv), "timeout", None, "", "", 1.0)

    refused = why_not(Slow())
    assert "did not answer in time" in refused.details
    assert asked == [trial._ASK_S]
    assert door.ask(Slow(), 3)[0] is None  # type: ignore[arg-type]
