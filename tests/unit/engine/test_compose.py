"""The compose command line, and what its failures mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine import compose
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Compose
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
