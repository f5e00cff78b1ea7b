"""The command lines of an engine's client, and that no other module makes them."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import engine_client, engine_door
from dshpc_setup.engine_client import DOCKER, Client
from dshpc_setup.errors import DshpcError
from dshpc_setup.terminal import command_names
from tests.unit.engine.fake import Answer, FakeMachine

TOP = Path(__file__).parents[2] / "dshpc_setup"
# Of a cluster's container, its image, its volumes and its network. What asks about the engine itself
# (version, info, context), builds images or tries a handover has command lines of its own.
VERBS = {
    "exec", "inspect", "logs", "top", "ps", "stop", "restart", "pause", "unpause", "rm", "rmi",
    "images", "volume", "network",
}  # fmt: skip
ELSEWHERE = {"passthrough/trial.py": "containers of its own, which nobody else ever asks about"}

NAMES = st.from_regex(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,30}", fullmatch=True)


@given(NAMES, st.lists(st.text(), min_size=1))
def test_a_program_in_a_container_is_read_back_whatever_its_words(
    name: str, argv: list[str]
) -> None:
    for client in (DOCKER, Client("/opt/bin/podman")):
        assert client.within(client.run_in(name, *argv)) == (name, argv)


@given(NAMES, st.lists(st.text(), min_size=1))
def test_a_line_with_options_or_of_another_client_is_not_read_as_one(
    name: str, argv: list[str]
) -> None:
    assert DOCKER.within(DOCKER.run_in(name, *argv, stdin=True)) is None
    assert DOCKER.within(DOCKER.run_in(name, *argv, env=["A=b"])) is None
    assert DOCKER.within(Client("podman").run_in(name, *argv)) is None
    assert DOCKER.within(DOCKER.logs(name)) is None


def test_options_come_before_the_container_and_the_program_after_it() -> None:
    made = DOCKER.run_in(
        "lab-slurm", "srun", "-i", stdin=True, terminal=True, user="7", env=["A", "B=c d"], folder="/w"
    )  # fmt: skip
    assert made == [
        *("docker", "exec", "-i", "-t", "--user", "7", "-e", "A", "-e", "B=c d", "-w", "/w"),
        *("lab-slurm", "srun", "-i"),
    ]


def test_nobody_else_makes_them() -> None:
    found = {}
    for path in sorted(TOP.rglob("*.py")):
        name = str(path.relative_to(TOP))
        if name in ELSEWHERE or name == "engine_client.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.List, ast.Tuple)) and _is_one(node.elts):
                found[f"{name}:{node.lineno}"] = ast.unparse(node)
    assert found == {}, "a method of dshpc_setup/engine_client.py"


def _is_one(words: list[ast.expr]) -> bool:
    """A literal list of words that begins with a verb of the client's behind whatever its program is."""
    if len(words) < 2 or not isinstance(words[1], ast.Constant):
        return False
    first = words[0]
    program = isinstance(first, ast.Constant) and first.value in ("docker", "podman")
    return words[1].value in VERBS and (program or "docker" in ast.unparse(first))


def test_the_guard_sees_one() -> None:
    for text in ('["docker", "exec", name]', '(call.docker, "logs", name)'):
        node = ast.parse(text, mode="eval").body
        assert isinstance(node, (ast.List, ast.Tuple))
        assert _is_one(node.elts)
    for text in ('["docker", "version"]', '["squeue", "ps"]', '("gpus", "docker")'):
        node = ast.parse(text, mode="eval").body
        assert isinstance(node, (ast.List, ast.Tuple))
        assert not _is_one(node.elts)


def test_advice_of_the_built_in_engine_can_be_typed() -> None:
    """Its client is no program in PATH; what it does not know is left as it is."""
    client = shlex.join(engine_client.builtin().program)
    for text, said in (
        ("To remove it: docker volume rm x-state", f"To remove it: {client} volume rm x-state"),
        ("sudo docker ps -a; docker rm -f x", f"{client} ps -a; {client} rm -f x"),
        ("docker system df", "docker system df"),
        ("docker-compose.yml, --engine docker", "docker-compose.yml, --engine docker"),
    ):
        assert engine_client.in_builtins_words(text) == said
    error = DshpcError("x", "", ("See whose it is: docker ps -a",))
    engine_door.through(
        FakeMachine(commands={"getent passwd": Answer("ada:x:0:0::/root:/bin/sh\n")}),
        engine_client.BUILTIN,
    )
    assert command_names.as_called(error.resolution[0]) == f"See whose it is: {client} ps -a"
