"""Where there is surely no engine, the SDK is not even loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.machine import CommandResult, Reply, commands, docker_api, docker_socket

ASKED = Reply("error", detail="asked")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration folder; the default socket would lie in it too."""
    for name in docker_api.CHOICE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setattr(docker_api, "_DEFAULT_SOCKET", str(tmp_path / "docker.sock"))
    monkeypatch.setattr(docker_api, "_ask", lambda *_: ASKED)
    monkeypatch.setattr(docker_socket, "ask", lambda *_: None)  # no plain answer
    return tmp_path


@pytest.mark.parametrize(
    "config", [None, "{}", '{"currentContext": ""}', '{"currentContext": "default"}']
)
def test_no_socket_and_no_choice_is_absent(home: Path, config: str | None) -> None:
    if config is not None:
        (home / "config.json").write_text(config)
    reply = docker_api.ask(1.0)
    assert (reply.state, reply.detail) == ("absent", "No such file or directory")
    assert reply.value == {"host": f"unix://{home}/docker.sock", "context": "default"}


@pytest.mark.parametrize("config", ['{"currentContext": "work"}', "{", "[]", "\0", "[" * 9999])
def test_a_chosen_context_is_asked(home: Path, config: str) -> None:
    (home / "config.json").write_text(config)
    assert docker_api.ask(1.0) == ASKED


@pytest.mark.parametrize("name", docker_api.CHOICE)
def test_a_named_engine_is_asked(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "work")
    assert docker_api.ask(1.0) == ASKED


def test_a_socket_is_asked(home: Path) -> None:
    (home / "docker.sock").touch()
    assert docker_api.ask(1.0) == ASKED


def test_a_folder_that_cannot_be_looked_into_is_no_absence(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_api, "_DEFAULT_SOCKET", str(home / "closed" / "docker.sock"))
    assert docker_api.ask(1.0) == ASKED


class RefusedError(Exception):
    status_code = 403


def test_an_engine_that_forbids_it_is_denied() -> None:
    error = RefusedError("authorization denied by plugin")
    assert (docker_api._state_of(error), docker_api._status_of(error)) == ("denied", 403)


def test_a_proxy_without_an_engine_is_an_error_by_its_code() -> None:
    class GatewayError(Exception):
        status_code = 502

    error = GatewayError("request returned Bad Gateway")
    assert (docker_api._state_of(error), docker_api._status_of(error)) == ("error", 502)


@pytest.mark.parametrize(
    ("results", "state", "words"),
    [
        (
            [("present", 0, '{"Version": "28.1"}', ""), ("present", 0, '{"ID": "x"}', "")],
            "present",
            "",
        ),
        ([("present", 1, "null", "ssh: Could not resolve hostname far")], "error", "hostname far"),
        ([("present", 255, "", "me@far: Permission denied (publickey).")], "denied", "publickey"),
        ([("absent", None, "", "No such file")], "error", "docker command is needed"),
        ([("timeout", None, "", "")], "timeout", "no answer within 2 s"),
        ([("present", 0, "garbage", "")], "error", "no JSON: 'garbage'"),
    ],
)
def test_an_engine_behind_ssh_is_asked_by_the_command(
    results: list[tuple[Any, ...]], state: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(argv: list[str], **_: object) -> CommandResult:
        asked.append(argv[1])
        state, code, stdout, stderr = results[len(asked) - 1]
        return CommandResult(tuple(argv), state, code, stdout, stderr, 1.0)

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far")
    reply = docker_api.ask(2.0)
    assert (reply.state, reply.source, words in (reply.detail or "")) == (
        state,
        "ssh://me@far",
        True,
    )
    assert asked == ["version", "info"][: len(results)]
    if state == "present":
        assert reply.value["version"] == {"Version": "28.1"}
        assert reply.value["info"] == {"ID": "x"}
