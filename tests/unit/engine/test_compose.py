"""The compose command line, and what its failures mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine import compose
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Compose
from dshpc_setup.machine import CommandResult
from tests.unit.engine.fake import Answer, FakeMachine

V2 = Compose("v2.26.1", ("docker", "compose"))
V1 = Compose("1.29.2", ("docker-compose",))
OLD = Compose("1.25.0", ("docker-compose",))


def test_v2_and_v1_get_the_same_flags() -> None:
    tail = [
        "--ansi",
        "never",
        "--project-directory",
        "/p",
        "-f",
        "/p/docker-compose.yml",
        "-p",
        "lab",
        "up",
    ]
    assert compose.command(FakeMachine(), V2, "/p", "lab", ["up"]) == ["docker", "compose", *tail]
    assert compose.command(FakeMachine(), V1, "/p/", "lab", ["up"])[:3] == [
        "docker-compose",
        "--ansi",
        "never",
    ]
    assert compose.command(FakeMachine(), OLD, "/p", "lab", ["up"])[1] == "--no-ansi"


def test_the_shells_variables_do_not_leak_in() -> None:
    machine = FakeMachine(
        env={
            "COMPOSE_FILE": "/elsewhere.yml",
            "COMPOSE_PROJECT_NAME": "other",
            "COMPOSE_HTTP_TIMEOUT": "300",
            "DSHPC_PREFIX": "other",
            "HOME": "/root",
        },
        files={"/p/.env": "# ours\nDSHPC_PREFIX=lab\n"},
    )
    argv = compose.command(machine, V2, "/p", "lab", ["up"])
    assert argv[:9] == [
        "env",
        "-u",
        "COMPOSE_FILE",
        "-u",
        "COMPOSE_PROJECT_NAME",
        "-u",
        "DSHPC_PREFIX",
        "docker",
        "compose",
    ]


@given(
    folder=st.text("abc /\\-'\"$é", min_size=1).map(lambda text: "/" + text.strip("/")),
    args=st.lists(st.text(min_size=1), max_size=4),
)
def test_arguments_arrive_whole(folder: str, args: list[str]) -> None:
    argv = compose.command(FakeMachine(), V2, folder, "lab", args)
    assert argv[4:6] == ["--project-directory", folder]
    assert argv[10:] == args


def test_lines_are_handed_over_as_they_come() -> None:
    machine = FakeMachine(commands={"docker compose": Answer("Container lab-slurm  Created\n")})
    seen: list[str] = []
    done = compose.up(machine, V2, "/p", "lab", on_line=seen.append)
    assert done.ok
    assert seen == ["Container lab-slurm  Created"]
    assert machine.lines()[0].endswith("-p lab up -d --no-build")


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "cannot pass the GPU"),
        ('Conflict. The container name "/x" is already in use', "taken by another container"),
        ("Bind for 0.0.0.0:80 failed: port is already allocated", "port is taken"),
        ("Error: No such image: dshpc:1", "image is not there"),
        ("Cannot connect to the Docker daemon at unix:///x", "does not answer"),
        ("KeyError: 'ContainerConfig'", "cannot replace a container"),
        (
            "OCI runtime create failed: error setting rlimits for ready process: error setting "
            "rlimit type 8: operation not permitted",
            "may not raise the limits",
        ),
        ("crun: setrlimit `RLIMIT_MEMLOCK`: Operation not permitted", "may not raise the limits"),
        ("something new", "docker compose up failed (exit code 17)"),
    ],
)
def test_failures_are_told_in_words_with_their_text(text: str, brief: str) -> None:
    machine = FakeMachine(commands={"docker compose": Answer(code=17, stderr=text)})
    with pytest.raises(DshpcError) as caught:
        compose.up(machine, V2, "/p", "lab")
    assert brief in caught.value.brief
    assert text in caught.value.details


def test_a_deadline_is_incomplete() -> None:
    machine = FakeMachine(commands={"docker-compose": Answer(state="timeout")})
    with pytest.raises(DshpcError, match="docker-compose down was not done") as caught:
        compose.down(machine, V1, "/p", "lab")
    assert caught.value.exit_code == Exit.INCOMPLETE


# -- does the tool take a text? --------------------------------------------------------------------

TEXT = "services:\n  slurm:\n    image: café\n"


@dataclass
class Listening(FakeMachine):
    """Notes what it is told on stdin, and where it is run."""

    stdins: list[bytes | str | None] = field(default_factory=list)
    folders: list[str | None] = field(default_factory=list)

    def run(self, argv: Sequence[str], **options: Any) -> CommandResult:
        self.stdins.append(options.get("stdin"))
        self.folders.append(options.get("cwd"))
        return super().run(argv, **options)


def test_a_text_is_checked_in_its_folder_and_nothing_is_written() -> None:
    machine = Listening(
        env={"COMPOSE_FILE": "/elsewhere.yml"},
        files={"/p": "", "/p/.env": "DSHPC_PREFIX=lab\n"},
        commands={"env": Answer()},
    )
    assert compose.check(machine, V2, TEXT, folder="/p") is None
    (argv,) = machine.ran
    assert argv == (
        "env", "-u", "COMPOSE_FILE", "docker", "compose", "--ansi", "never",
        "--project-directory", "/p", "-f", "-", "-p", "dshpc-check", "config", "-q",
    )  # fmt: skip
    assert machine.stdins == [TEXT]
    assert machine.folders == ["/p"]
    assert machine.environments == [{"PYTHONIOENCODING": "utf-8"}]


def test_a_folder_that_is_not_there_yet_is_no_reason_to_refuse() -> None:
    machine = Listening(commands={"docker-compose": Answer()})
    assert compose.check(machine, V1, TEXT, folder="/new") is None
    assert machine.folders == [None]


def test_a_warning_is_no_refusal() -> None:
    machine = FakeMachine(
        commands={"docker-compose": Answer(stderr="The FOO variable is not set.")}
    )
    assert compose.check(machine, V1, TEXT, folder="/p") is None


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "validating -: services.slurm additional properties 'gpuz' not allowed",
            "validating -: services.slurm additional properties 'gpuz' not allowed",
        ),
        (
            "The Compose file is invalid because:\nUnsupported config option for services.a: 'gpus'\n",
            "The Compose file is invalid because:\nUnsupported config option for services.a: 'gpus'",
        ),
        (
            "Traceback (most recent call last):\n"
            '  File "/usr/bin/docker-compose", line 33, in <module>\n'
            "    sys.exit(load_entry_point())\n"
            "             ^^^^^^^^^^^^^^^^^^^\n"
            "yaml.scanner.ScannerError: mapping values are not allowed here\n"
            '  in "<stdin>", line 3, column 11\n',
            "yaml.scanner.ScannerError: mapping values are not allowed here\n"
            '  in "<stdin>", line 3, column 11',
        ),
        ("", "exit code 1"),
    ],
)
def test_a_refusal_is_told_in_the_tools_own_words(said: str, told: str) -> None:
    machine = FakeMachine(commands={"docker-compose": Answer(code=1, stderr=said)})
    assert compose.check(machine, V1, TEXT, folder="/p") == told


@pytest.mark.parametrize(
    ("answer", "brief", "code"),
    [
        (Answer(code=None, state="timeout"), "docker compose config was not done", Exit.INCOMPLETE),
        (Answer(code=None, state="absent"), "docker cannot be run any more", Exit.ERROR),
        (Answer(code=None, state="denied"), "docker cannot be run any more", Exit.ERROR),
    ],
)
def test_no_answer_is_neither_yes_nor_no(answer: Answer, brief: str, code: Exit) -> None:
    machine = FakeMachine(commands={"docker compose": answer})
    with pytest.raises(DshpcError, match=brief) as caught:
        compose.check(machine, V2, TEXT, folder="/p", deadline_s=5.0)
    assert caught.value.exit_code == code


@pytest.mark.parametrize(
    ("text", "images"),
    [
        (
            'services:\n  a:\n    image: "x:1"  # one\n  b: {image: y}\n  c: {build: .}\n',
            ("x:1", "y"),
        ),
        ("services:\n  a:\n    # image: x\n    labels:\n      image: z\n", ()),
        ("services: [a]\n", ()),
        ("services: [\n", ()),
        ("", ()),
    ],
)
def test_the_images_that_a_file_names(text: str, images: tuple[str, ...]) -> None:
    assert compose.images(text) == images
