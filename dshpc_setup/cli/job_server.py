"""`dshpc lab` and `dshpc code`: a server in a job, found or submitted, and a port of the loopback to it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, exec_stdin, exec_trouble, put, ssh_proxy
from dshpc_setup.cli.job_request import Cluster, ask, cluster
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.files import atomic, locks
from dshpc_setup.jobs import environments, request_building
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.request_building import CommandLine
from dshpc_setup.jobs.staging import Incoming
from dshpc_setup.machine import browser as browser_of
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.methods.model import Resources
from dshpc_setup.notebooks import code_server, code_tree, forward, jupyter
from dshpc_setup.ssh import place
from dshpc_setup.ssh.inside import Asked
from dshpc_setup.terminal.command_names import as_called

TIME = "8h"
_WAIT_S = 366 * 86400.0  # for a job that is queued
_STATE = ".local/state/dshpc"
_MOST = 1 << 16
_TAKE_S = 10.0
_BEGINS_S = 120.0
_SOON = "--wait=2"  # one that has answered before
_OPEN_S = 30.0  # until it has read the page that leads on


@dataclass(frozen=True)
class Program:
    """What the job runs: its words, the environment whose programs come first, and its variables."""

    words: tuple[str, ...]
    environment: str
    variables: Mapping[str, str]


@dataclass(frozen=True)
class Server:
    """A kind of server. `name`: of its command, its job, its socket. `program`: of a command line, the
    folder that it serves, and a token."""

    name: str
    title: str
    address: Callable[[int, str], str]
    program: Callable[[Line, Incoming, str, str], Program]


@dataclass(frozen=True)
class Line:
    """What was asked for: `asked` is the job's size; `env` a folder whose packages its programs get."""

    server: Server
    asked: CommandLine
    dir: str | None = None
    linger: str = ssh_proxy.LINGER
    env: str | None = None
    attach: bool = False
    browser: bool = True

    @property
    def linger_s(self) -> float:
        return ssh_proxy.seconds(self.linger)


def carry_out(line: Line) -> int:
    """Print the address once the job runs, leave who forwards to it behind, and give the exit code."""
    linger_s, name, here = line.linger_s, line.server.name, cluster(line.dir)
    token = os.urandom(24).hex()
    request = None if line.attach else _request(line, here, token)
    asked = Asked(name, linger_s, (), request=request, token=token)
    answer = ask(here.runtime, "ssh", asked, deadline_s=_WAIT_S)
    job, right = str(answer["job_id"]), str(answer["token"])
    is_new = request is not None and right == token
    for note in request_building.notes(line.asked) if is_new else ():
        _say(note)
    if request is not None and not is_new:
        _say(f"it runs already, as job {job}: that one is shown.")
    words = [str(word) for word in answer["enter"]]
    _need_answer(line.server, here, words, job)
    soon = [_SOON if word.startswith("--wait=") else word for word in words]
    shown = _Shown(line.server, here, soon, right, line.browser and os.isatty(1))
    url = _forwarded(shown)
    put(f"{url}\n")
    _say(f"job {job} keeps running without this terminal. See it again: dshpc {name} --attach")
    ends = f"It ends {line.linger} after its last use. " if is_new else ""
    _say(f"{ends}End it now: dshpc job cancel {job}")
    return int(Exit.OK)


def _need_answer(server: Server, here: Cluster, words: list[str], job: str) -> None:
    """Wait until it listens; DshpcError where it does not."""
    argv = _joining(here, words)
    done = LocalMachine().run(argv, deadline_s=_BEGINS_S, stdin="")
    if not done.ok:
        raise DshpcError(
            f"{server.title} does not answer in job {job}.",
            done.text if done.code != place.NONE_THERE else "",
            (f"See what it says: dshpc job logs {job}", f"End it: dshpc job cancel {job}"),
            Exit.INCOMPLETE,
        )


def _request(line: Line, here: Cluster, token: str) -> Request:
    """With its environments, made where they are not there yet: once the cluster can have such a job."""
    foreseen = _built(line, here, token, dry=True)
    if not os.path.isdir(foreseen.environment or ""):
        ask(here.runtime, "submit", replace(foreseen, dry_run=True))
    return _built(line, here, token, dry=False)


def _built(line: Line, here: Cluster, token: str, *, dry: bool) -> Request:
    incoming = Incoming(here.work, here.owner, dry, here.prepare, here.also)
    folder = incoming.seen(os.path.realpath(os.getcwd()))
    if folder is None:
        folder = here.work
        if dry:
            execution.say(exec_trouble.not_seen(execution.Call("exec", [], here.runtime)))
    program = line.server.program(line, incoming, folder, token)
    asked = replace(
        line.asked, name=line.server.name, command=program.words, time=line.asked.time or TIME
    )
    request = request_building.of_command(asked, incoming)
    says = line.asked.gpus or line.asked.gpu_type or line.asked.gpu_memory
    usual = Resources(gpus=1, optional_gpus="always" if says else "auto")
    resources = replace(request_building.with_asked(usual, asked), env=dict(program.variables))
    return replace(
        request, cwd=folder, in_place=True, environment=program.environment, resources=resources
    )


def _lab(line: Line, incoming: Incoming, folder: str, token: str) -> Program:
    kernels = None
    if line.env is not None:
        kernels = environments.ready(line.env, incoming)
        if not incoming.dry and not os.path.isdir(f"{kernels}/share/jupyter/kernels"):
            raise usage_error(
                f"Notebooks cannot run in the environment of {line.env}: it has no kernel.", "",
                "Declare the package ipykernel there, too.",
            )  # fmt: skip
    environment = environments.ready(str(jupyter.PACKAGES), incoming)
    words = jupyter.argv(environment, folder, place.SOCKET, line.linger_s)
    return Program(words, environment, jupyter.variables(token, kernels))


def _code(line: Line, incoming: Incoming, folder: str, token: str) -> Program:
    own = None if line.env is None else environments.ready(line.env, incoming)
    tree = environments.made(code_tree.declared(), incoming, code_tree.make)
    words = code_server.argv(tree, folder, place.SOCKET, line.linger_s, token)
    return Program(words, own or tree, code_server.variables(token))


LAB = Server("lab", "JupyterLab", jupyter.address, _lab)
CODE = Server(code_server.NAME, code_server.TITLE, code_server.address, _code)
SERVERS = {each.name: each for each in (LAB, CODE)}


@dataclass(frozen=True)
class _Shown:
    """A server that answers: `words` join a connection to it."""

    server: Server
    here: Cluster
    words: list[str]
    token: str
    browser: bool

    def url(self, port: int) -> str:
        return self.server.address(port, self.token)


def _forwarded(shown: _Shown) -> str:
    """The address, which somebody forwards by now: whoever did so before, or who is left behind for it."""
    with _State(shown.server.name, shown.here.project) as state:
        if state.words == shown.words and state.is_held:
            url = shown.url(state.port)
            _leave(lambda: _open(url, shown.server.name)) if shown.browser else None
            return url
        state.take()
        with forward.listening(state.port) as listening:
            state.port = listening.getsockname()[1]
            state.write(_leave(lambda: _serve(shown, listening)), shown.words)
            return shown.url(state.port)


class _State:
    """The file that says who forwards for this cluster, on which port and by which words, and which that one
    holds locked."""

    def __init__(self, server: str, project: str) -> None:
        self.server = server
        base = Path(os.environ.get("HOME") or "~").expanduser() / _STATE
        name = f"{server}-{hashlib.sha256(project.encode()).hexdigest()[:16]}.json"
        try:
            base.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self.handle = os.open(base / name, flags, 0o600)
        except OSError as error:
            raise atomic.write_error(error, base / name) from None
        self.port, self.pid, self.words = self._read()

    def _read(self) -> tuple[int, int, list[str]]:
        try:
            value = foreign.value(os.pread(self.handle, _MOST, 0).decode())
            port, pid, words = int(value["port"]), int(value["pid"]), list(map(str, value["words"]))
        except (ValueError, LookupError, TypeError):
            return 0, 0, []
        return (port if 0 < port < 1 << 16 else 0), pid, words

    def __enter__(self) -> _State:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)

    @property
    def is_held(self) -> bool:
        if not locks.hold(self.handle, fcntl.LOCK_EX, 0):
            return True
        fcntl.flock(self.handle, fcntl.LOCK_UN)
        return False

    def take(self) -> None:
        """Lock it, for who comes after us; whoever forwards to another job is ended."""
        if self.is_held and self._is_open_in(self.pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)
        if not locks.hold(self.handle, fcntl.LOCK_EX, _TAKE_S):
            raise DshpcError(
                f"Another dshpc {self.server} is just starting.", "", ("Run this again in a moment.",),
                Exit.INCOMPLETE,
            )  # fmt: skip

    def _is_open_in(self, pid: int) -> bool:
        """Who has it is known by that alone: the number may be another program's by now."""
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder) if pid > 1 else []
        except OSError:
            return False
        for name in names:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"{folder}/{name}"), os.fstat(self.handle)):
                    return True
        return False

    def write(self, pid: int, words: list[str]) -> None:
        text = json.dumps({"port": self.port, "pid": pid, "words": words}).encode()
        os.ftruncate(self.handle, 0)
        os.pwrite(self.handle, text, 0)


def _serve(shown: _Shown, listening: socket.socket) -> None:
    url = shown.url(listening.getsockname()[1])
    name = shown.server.name
    opened = browser_of.opened(LocalMachine(), url, name)
    with opened if shown.browser else contextlib.nullcontext():
        gone = forward.gone_page(shown.server.title, f"dshpc {name}")
        users = (os.getuid(), exec_caller.calling_user(os.environ)[0])
        forward.Forwarder(listening, lambda: _joining(shown.here, shown.words), gone, users).serve()


def _joining(here: Cluster, words: list[str]) -> list[str]:
    """The program that joins its streams to the server in the job."""
    call = execution.Call("exec", words, here.runtime)
    call.mode, call.folder = exec_stdin.DIRECT, call.work
    return call.client(exec_caller.calling_user(os.environ), os.environ)


def _open(url: str, name: str) -> None:
    with browser_of.opened(LocalMachine(), url, name):
        time.sleep(_OPEN_S)


def _leave(work: Callable[[], None]) -> int:
    """A process that does it when we have ended, with no terminal and none of our streams: its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        os.chdir("/")
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        work()
        code = 0
    finally:
        os._exit(code)


def _say(text: str) -> None:
    sys.stderr.write(f"dshpc: {as_called(text)}\n")
    sys.stderr.flush()
