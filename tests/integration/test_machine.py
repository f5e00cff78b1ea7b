"""The door to the world itself: deadlines that hold, and an engine that answers, refuses or hangs."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dshpc_setup import probes
from dshpc_setup.machine.local import LocalMachine

LOCAL = LocalMachine()


def test_a_grandchild_that_holds_the_streams_does_not_hold_us() -> None:
    started = time.monotonic()
    result = LOCAL.run(["sh", "-c", "sleep 3 & echo done"], deadline_s=10)
    assert time.monotonic() - started < 1.5
    assert (result.state, result.code, result.stdout) == ("present", 0, "done\n")


def test_a_child_that_ignores_the_polite_signal_is_killed_with_its_group() -> None:
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    started = time.monotonic()
    result = LOCAL.run(["sh", "-c", script], deadline_s=0.5)
    assert time.monotonic() - started < 1.2
    assert (result.state, result.code) == ("timeout", None)
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.stdout.split()[0]), 0)


def test_no_program_and_no_right_to_it_are_told_apart(tmp_path: Path) -> None:
    assert LOCAL.run(["dshpc-no-such-program"], deadline_s=1).state == "absent"
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    assert LOCAL.run([str(plain)], deadline_s=1).state == "denied"


def test_lines_come_as_they_are_printed() -> None:
    seen: list[tuple[str, float]] = []
    script = "import time; print('a', flush=True); time.sleep(0.5); print('b', end='')"
    LOCAL.run(
        [sys.executable, "-c", script],
        deadline_s=10,
        on_line=lambda line: seen.append((line, time.monotonic())),
    )
    assert [line for line, _ in seen] == ["a", "b"]
    assert seen[1][1] - seen[0][1] > 0.3


def test_the_engine_answers(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    facts = probes.gather(LOCAL)
    assert (facts.engine.state, facts.engine.server_version) == ("present", engine)
    assert facts.engine.compose is not None
    assert facts.engine.cgroup_version in (1, 2)
    assert facts.cpu.usable
    assert facts.memory.limit_mib


def asked(host: str, *, deadline_s: float = 5, uid: int | None = None) -> tuple[str, str, float]:
    """State, reason and seconds of an engine asked in a process of its own.

    The SDK leaves a socket unclosed where it cannot connect; that must not fall on later tests.
    """
    script = (
        "import sys, os, time; sys.path[:] = sys.argv[1:]\n"
        "import docker.utils, docker.context\n"
        "from dshpc_setup.machine import docker_api\n"
        f"uid = {uid}\n"
        "if uid is not None: os.setuid(uid)\n"
        "started = time.monotonic()\n"
        f"reply = docker_api.ask({deadline_s})\n"
        "print(reply.state, time.monotonic() - started, reply.detail, sep='|')\n"
    )
    env = {"DOCKER_HOST": host} if host.startswith("unix:") else {"DOCKER_CONTEXT": host}
    result = LOCAL.run([sys.executable, "-c", script, *sys.path], deadline_s=30, env=env)
    assert result.ok, result.text
    state, seconds, detail = result.stdout.strip().split("|", 2)
    return state, detail, float(seconds)


def test_no_socket_is_absent(tmp_path: Path) -> None:
    state, detail, _ = asked(f"unix://{tmp_path}/docker.sock")
    assert (state, detail) == ("absent", "No such file or directory")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.bind(str(tmp_path / "docker.sock"))
        yield waiting


def test_a_socket_that_nobody_listens_on_is_absent(listener: socket.socket) -> None:
    state, detail, _ = asked(f"unix://{listener.getsockname()}")
    assert (state, detail) == ("absent", "Connection refused")


def test_an_engine_that_never_answers_is_a_timeout(listener: socket.socket) -> None:
    listener.listen()
    state, _, seconds = asked(f"unix://{listener.getsockname()}", deadline_s=1.5)
    assert state == "timeout"
    assert seconds < 1.9


def test_a_socket_of_others_is_denied(listener: socket.socket) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody who has no right to the socket")
    listener.listen()
    path = Path(listener.getsockname())
    path.chmod(0o600)
    for folder in path.parents[:3]:  # the way to the socket is open, the socket is not
        folder.chmod(0o755)
    state, detail, _ = asked(f"unix://{path}", uid=65534)
    assert (state, detail) == ("denied", "Permission denied")


def test_a_context_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    state, detail, _ = asked("no-such-context")
    assert state == "error"
    assert "no-such-context" in detail
