"""The door to the world itself: deadlines that hold, and an engine that answers, refuses or hangs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dshpc_setup import probes
from dshpc_setup.machine import docker_api, docker_socket
from dshpc_setup.machine.local import LocalMachine

LOCAL = LocalMachine()


def test_a_grandchild_that_holds_the_streams_does_not_hold_us() -> None:
    started = time.monotonic()
    result = LOCAL.run(["sh", "-c", "sleep 60 & echo done"], deadline_s=60)
    assert time.monotonic() - started < 40
    assert (result.state, result.code, result.stdout) == ("present", 0, "done\n")


def test_a_child_that_ignores_the_polite_signal_is_killed_with_its_group() -> None:
    script = "trap '' TERM; echo $$; while :; do sleep 0.1; done"
    started = time.monotonic()
    result = LOCAL.run(["sh", "-c", script], deadline_s=0.5)
    if not result.stdout:  # on a very busy machine
        result = LOCAL.run(["sh", "-c", script], deadline_s=15)
    assert time.monotonic() - started < 50
    assert (result.state, result.code) == ("timeout", None)
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.stdout.split()[0]), 0)


def test_ctrl_c_as_a_command_begins_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between fork and the return of Popen nobody but its parent could end it."""
    begin = subprocess.Popen.__init__
    begun: list[int] = []

    def interrupted(self: subprocess.Popen[bytes], *given: Any, **more: Any) -> None:
        begin(self, *given, **more)
        begun.append(self.pid)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess.Popen, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        LOCAL.run(["sleep", "60"], deadline_s=90)
    (pid,) = begun
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_no_program_and_no_right_to_it_are_told_apart(tmp_path: Path) -> None:
    assert LOCAL.run(["dshpc-no-such-program"], deadline_s=1).state == "absent"
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    assert LOCAL.run([str(plain)], deadline_s=1).state == "denied"


def test_a_file_on_the_path_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{__file__}")
    assert LOCAL.run(["dshpc-no-such-program"], deadline_s=1).state == "absent"


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_one_that_never_stops_printing_is_ended(stream: str) -> None:
    started = time.monotonic()
    result = LOCAL.run(["sh", "-c", f"exec yes{stream}"], deadline_s=120)
    assert time.monotonic() - started < 60
    assert (result.state, result.code) == ("error", None)
    assert "more than 64 MiB" in result.stderr
    assert len(result.text) < 10_000


def test_where_no_folder_can_be_written_commands_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    assert LOCAL.run(["cat"], stdin="x", deadline_s=60).stdout == "x"


def test_all_lines_come_however_many_the_last_moment_brings() -> None:
    seen: list[str] = []
    LOCAL.run(["seq", "400000"], deadline_s=60, on_line=seen.append)
    assert (len(seen), seen[-1]) == (400000, "400000")


def test_lines_come_as_they_are_printed(tmp_path: Path) -> None:
    """The second is not printed before the first has come."""
    seen: list[str] = []
    go = tmp_path / "go"

    def come(line: str) -> None:
        seen.append(line)
        go.touch()

    script = 'echo a; until [ -e "$0" ]; do sleep 0.01; done; printf b'
    result = LOCAL.run(["sh", "-c", script, str(go)], deadline_s=60, on_line=come)
    assert (result.state, seen) == ("present", ["a", "b"])


def test_the_engine_answers(docker_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    facts = probes.gather(LOCAL, deadline_s=60)
    assert (facts.engine.state, facts.engine.server_version) == ("present", docker_engine)
    assert facts.engine.compose is not None
    assert facts.engine.cgroup_version in (1, 2)
    assert facts.cpu.usable
    assert facts.memory.limit_mib


def asked(
    host: str, *, deadline_s: float = 30, uid: int | None = None, **env: str
) -> tuple[str, str, float]:
    """State, reason and seconds of an engine asked in a process of its own.

    The SDK leaves a socket unclosed where it cannot connect; that must not fall on later tests.
    """
    reply = reply_of(host, deadline_s=deadline_s, uid=uid, **env)
    return reply["state"], reply["detail"], reply["seconds"]


def reply_of(
    host: str, *, deadline_s: float = 30, uid: int | None = None, **env: str
) -> dict[str, Any]:
    """The whole reply; `host` is an endpoint, the name of a context, or "" for neither."""
    script = (
        "import sys, os, time, json; sys.path[:] = sys.argv[1:]\n"
        "from dshpc_setup.machine import docker_api\n"
        "import docker.utils, docker.context\n"
        f"uid = {uid}\n"
        "if uid is not None: os.setuid(uid)\n"
        "started = time.monotonic()\n"
        f"reply = docker_api.ask({deadline_s})\n"
        "print(json.dumps(vars(reply) | {'seconds': time.monotonic() - started}))\n"
    )
    kind = "DOCKER_HOST" if "://" in host else "DOCKER_CONTEXT"
    env = {"DOCKER_HOST": "", "DOCKER_CONTEXT": "", **env, kind: host}
    result = LOCAL.run([sys.executable, "-c", script, *sys.path], deadline_s=90, env=env)
    assert result.ok, result.text
    found: dict[str, Any] = json.loads(result.stdout)
    return found


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
    assert seconds < 20


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


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[[bytes], str]]:
    """Makes an endpoint that says the same to everybody."""
    serving: list[tuple[socket.socket, Thread]] = []

    def start(answer: bytes) -> str:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(tmp_path / f"{len(serving)}.sock"))
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(answer)

        thread = Thread(target=serve, daemon=True)
        thread.start()
        serving.append((server, thread))
        return f"unix://{server.getsockname()}"

    yield start
    for server, thread in serving:
        end(server, thread)
        server.close()


def end(server: socket.socket, thread: Thread) -> None:
    """The thread is over before its socket is closed: the next one's may get the same number."""
    server.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert not thread.is_alive()


def http(body: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (http("<html>Please log in</html>", kind="text/html"), "Please log in"),
        (http('{"message": "client version 1.22 is too old"}', "400 Bad Request"),
         "client version 1.22 is too old"),
        (http('{"Version": "17.1"}'), "ApiVersion"),
        (http('{"ApiVersion": "1.12"}'), "1.24"),
        (http('{"ApiVersion": ["1.41"]}'), ""),
        (http("[]"), ""),
        (http("", "500 Internal Server Error"), "500"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"", ""),
    ],
)  # fmt: skip
def test_what_is_no_engines_answer_is_an_error(
    answering: Callable[[bytes], str], answer: bytes, told: str
) -> None:
    endpoint = answering(answer)
    reply = reply_of(endpoint)
    assert reply["state"] == "error"
    assert told in reply["detail"]
    assert reply["detail"]
    assert reply["value"] == {"host": endpoint, "context": "default"}


PLAIN = {"ApiVersion": "1.41", "ServerVersion": "20.10.24"}


def test_an_answer_of_known_length_is_not_waited_for(tmp_path: Path) -> None:
    """A proxy may keep the connection open, whatever it was asked."""
    path = tmp_path / "proxy.sock"
    kept: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    kept.append(connection)
                    connection.recv(65536)
                    answer = http(json.dumps(PLAIN)).replace(b"Connection: close", b"X: y")
                    for at in range(0, len(answer), 7):  # in crumbs
                        connection.sendall(answer[at : at + 7])

        thread = Thread(target=serve, daemon=True)
        thread.start()
        started = time.monotonic()
        reply = docker_socket.ask(str(path), {"host": "unix"}, 60)
        assert time.monotonic() - started < 40
        assert reply is not None
        assert (reply.state, reply.value["info"]) == ("present", PLAIN)
        end(server, thread)
    for connection in kept:
        connection.close()


def test_a_full_queue_is_no_answer_in_time(listener: socket.socket) -> None:
    listener.listen(0)
    path = listener.getsockname()
    with contextlib.ExitStack() as waiting:
        for _ in range(4):
            one = waiting.enter_context(socket.socket(socket.AF_UNIX))
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                one.connect(path)
        reply = docker_socket.ask(path, {"host": "unix"}, 0.5)
    assert reply is not None
    assert reply.state == "timeout"


def test_a_context_names_its_endpoint(tmp_path: Path) -> None:
    name = hashlib.sha256(b"work").hexdigest()
    meta = tmp_path / "contexts" / "meta" / name
    meta.mkdir(parents=True)
    endpoint = f"unix://{tmp_path}/no.sock"
    told = {"Name": "work", "Metadata": {}, "Endpoints": {"docker": {"Host": endpoint}}}
    (meta / "meta.json").write_text(json.dumps(told))
    (tmp_path / "config.json").write_text('{"currentContext": "work"}')
    reply = reply_of("", DOCKER_CONFIG=str(tmp_path))
    assert reply["value"] == {"host": endpoint, "context": "work"}
    assert (reply["state"], reply["detail"]) == ("absent", "No such file or directory")


def test_the_plain_answer_is_the_sdks(docker_engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in docker_api.CHOICE:
        monkeypatch.delenv(name, raising=False)
    plain = docker_api.ask(60)
    monkeypatch.setattr(docker_socket, "ask", lambda *_: None)
    asked = docker_api.ask(60)
    assert (plain.state, plain.source) == (asked.state, asked.source) == ("present", asked.source)
    assert plain.value["version"] == asked.value["version"]
    assert set(plain.value["info"]) == set(asked.value["info"])
    assert plain.value["context"] == asked.value["context"]
