"""Containers by name: there is none, and the engine says nothing, are two things."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine import containers
from dshpc_setup.errors import DshpcError, Exit
from tests.unit.engine.fake import Answer, FakeMachine

GONE = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?"
NONE = [
    "Error: No such object: x",
    "Error response from daemon: No such container: x",
    "Error: No such container: x",
]


def described(**state: object) -> str:
    return json.dumps(
        [
            {
                "Id": "6cb8",
                "Name": "/lab-slurm",
                "Image": "sha256:a01d",
                "Created": "2026-01-02T03:04:05.6Z",
                "Config": {"Image": "dshpc:1", "Labels": {"a": "b"}},
                "State": {
                    "Status": "running",
                    "Running": True,
                    "ExitCode": 0,
                    "StartedAt": "2026-01-02T03:04:06Z",
                    **state,
                },
            }
        ]
    )


def test_a_container_is_described() -> None:
    answer = Answer(described(Health={"Status": "healthy"}))
    machine = FakeMachine(commands={"docker inspect --type container -- lab-slurm": answer})
    found = containers.inspect(machine, "lab-slurm")
    assert found is not None
    assert (found.name, found.image_id, found.image) == ("lab-slurm", "sha256:a01d", "dshpc:1")
    assert (found.running, found.health, found.exit_code) == (True, "healthy", None)
    assert found.labels == {"a": "b"}


def test_what_never_ran_has_no_exit_code_and_no_start() -> None:
    text = described(Status="created", Running=False, StartedAt="0001-01-01T00:00:00Z")
    found = containers.inspect(FakeMachine(commands={"docker": Answer(text)}), "x")
    assert found is not None
    assert (found.exit_code, found.started, found.health) == (None, None, None)


@pytest.mark.parametrize("text", NONE)
def test_none_is_none(text: str) -> None:
    machine = FakeMachine(commands={"docker": Answer("[]\n", 1, text)})
    assert containers.inspect(machine, "x") is None
    assert containers.remove(machine, "x") is False


@pytest.mark.parametrize(
    ("answer", "brief", "code"),
    [
        (Answer("[]", 1, GONE), "does not answer", Exit.ERROR),
        (Answer(code=1, stderr="permission denied while trying"), "may not use", Exit.ERROR),
        (Answer(state="timeout"), "did not answer in time", Exit.INCOMPLETE),
        (Answer(state="absent"), "no docker command", Exit.ERROR),
        (Answer("not json"), "cannot be read", Exit.ERROR),
        (Answer("[3]"), "cannot be read", Exit.ERROR),
    ],
)
def test_an_engine_that_says_nothing_is_an_error(answer: Answer, brief: str, code: int) -> None:
    machine = FakeMachine(commands={"docker": answer})
    for ask in (containers.inspect, containers.remove):
        with pytest.raises(DshpcError, match=brief) as caught:
            ask(machine, "x")
        assert caught.value.exit_code == code


def test_a_programs_own_exit_code_passes_through() -> None:
    machine = FakeMachine(commands={"docker exec": Answer("out", 7, "srun: error: no")})
    done = containers.exec_in(machine, "c", ["srun", "x"], user="ada", deadline_s=5)
    assert (done.code, done.stdout) == (7, "out")
    assert machine.lines() == ["docker exec --user ada c srun x"]


@pytest.mark.parametrize(
    "text", [*NONE[1:], GONE, "Error response from daemon: Container 6cb is not running"]
)
def test_a_program_that_never_ran_is_an_error(text: str) -> None:
    machine = FakeMachine(commands={"docker exec": Answer(code=1, stderr=text)})
    with pytest.raises(DshpcError, match="Nothing can be run in the container c"):
        containers.exec_in(machine, "c", ["true"], deadline_s=5)


@given(st.lists(st.text(min_size=1), min_size=1))
def test_argv_arrives_whole_after_the_containers_name(argv: list[str]) -> None:
    machine = FakeMachine(commands={"docker exec": Answer()})
    containers.exec_in(machine, "c", argv, deadline_s=5, stdin="x")
    assert machine.ran[0] == ("docker", "exec", "-i", "c", *argv)


@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (containers.volumes, "docker volume ls -q"),
        (containers.networks, "docker network ls --format {{.Name}}"),
        (containers.containers, "docker ps -a --format {{.Names}}"),
        (containers.images, "docker images --format {{.Repository}}:{{.Tag}}"),
    ],
)
def test_things_are_found_by_label(
    ask: Callable[[FakeMachine, str], tuple[str, ...]], command: str
) -> None:
    machine = FakeMachine(commands={"docker": Answer("b\na\n")})
    assert ask(machine, "dshpc=lab") == ("a", "b")
    assert machine.lines() == [f"{command} --filter label=dshpc=lab"]
    with pytest.raises(DshpcError, match="could not be listed"):
        ask(FakeMachine(commands={"docker": Answer(code=1)}), "x")


@pytest.mark.parametrize(
    ("remove", "command", "none"),
    [
        (containers.remove_volume, "docker volume rm -- x", "get x: no such volume"),
        (containers.remove_network, "docker network rm x", "network x not found\nexit status 1"),
        (containers.remove_image, "docker rmi -- x", "No such image: x"),
    ],
)
def test_removing_by_name(
    remove: Callable[[FakeMachine, str], bool], command: str, none: str
) -> None:
    machine = FakeMachine(commands={command: Answer()})
    assert remove(machine, "x") is True
    machine.commands[command] = Answer(code=1, stderr=f"Error response from daemon: {none}")
    assert remove(machine, "x") is False
    machine.commands[command] = Answer(code=1, stderr="Error response from daemon: x is in use")
    with pytest.raises(DshpcError, match="x could not be removed") as caught:
        remove(machine, "x")
    assert "in use" in caught.value.details


def test_the_labels_of_a_volume() -> None:
    machine = FakeMachine(commands={"docker inspect": Answer('[{"Labels": {"a": "1"}}]')})
    assert containers.volume_labels(machine, "v") == {"a": "1"}
    assert containers.volume_label(machine, "v", "a") == "1"
    machine.commands["docker inspect"] = Answer('[{"Labels": null}]')
    assert containers.volume_labels(machine, "v") == {}
    none = Answer("[]", 1, "Error: No such volume: v")
    machine.commands["docker inspect"] = none
    assert containers.volume_labels(machine, "v") is None


def test_an_error_shows_what_docker_says_and_not_its_empty_list() -> None:
    machine = FakeMachine(commands={"docker": Answer("[]\n", 1, "something new went wrong")})
    with pytest.raises(DshpcError) as caught:
        containers.inspect(machine, "x")
    assert caught.value.details == "something new went wrong"
    machine.commands["docker"] = Answer("only here", 1)
    with pytest.raises(DshpcError) as caught:
        containers.inspect(machine, "x")
    assert caught.value.details == "only here"
