"""The join service: a process of the cluster's owner that listens only while a token lives."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from dshpc_setup.builtin import processes
from dshpc_setup.cluster import own_process
from dshpc_setup.cluster.targets import Target
from dshpc_setup.errors import DshpcError
from dshpc_setup.join import certificate, cluster_facts, messages, tokens
from dshpc_setup.join.answering import Desk
from dshpc_setup.machine import Machine
from dshpc_setup.machine.listeners import listen
from dshpc_setup.project.folder import Project
from dshpc_setup.settings import Settings

NOTE = f"{tokens.FOLDER}/service.json"
LOG = f"{tokens.FOLDER}/log"
_MOST_AT_ONCE, _MOST_OF_ONE = 64, 4
_HELLO_S = 3.0  # who connects speaks first, and at once
_TALK_S = 30.0
_LOOK_S = 1.0
_GRACE_S = 600.0  # who has the key already may still say that all is done
_MOST_LOG = 1 << 20
_SHOWN_LINES = 40


@dataclass(frozen=True)
class Running:
    """Where it listens, and the pin of its certificate."""

    port: int
    pin: str


def ensure(machine: Machine, cluster: Target, address: str, ports: tuple[int, int]) -> Running:
    """Running, started now where it was not; `ports`: the range that it may take one of.

    Raises DshpcError where it does not come up.
    """
    project = cluster.project
    folder = project.folder / tokens.FOLDER
    note = project.read_note(NOTE)
    process = own_process.of_note(note)
    port, pin = note.get("port"), note.get("pin")
    if process and processes.runs(process) and isinstance(port, int) and isinstance(pin, str):
        return Running(port, pin)
    pin = certificate.there(folder) or certificate.make(project, folder)
    port = _free(address, ports)
    words = ["node", "token", "--serve", str(port), "--dir", str(project.folder)]
    process = own_process.start(machine, folder, words, "dsHPC setup: machines that join")
    if process is None or not own_process.listens(process, (address, port)):
        said = own_process.said(folder)
        raise DshpcError("The join service has ended.", said or "It gave no reason.")
    project.write_json(NOTE, own_process.to_note(process, port=port, pin=pin))
    return Running(port, pin)


def _free(address: str, ports: tuple[int, int]) -> int:
    """The last one of srun's ports at which nobody listens: a firewall lets those in anyway."""
    for port in range(ports[1], ports[0] - 1, -1):
        with contextlib.suppress(OSError):
            listen(address, port).close()
            return port
    raise DshpcError(
        f"No port from {ports[0]} to {ports[1]} is free at {address}.",
        "The join service takes one of srun's ports.",
        (f"See who listens: ss -ltnp src {address}",),
    )


def stop(cluster: Target) -> None:
    """It ends, if it runs."""
    process = own_process.of_note(cluster.project.read_note(NOTE))
    if process is not None:
        own_process.end(process)
        cluster.project.drop_json(NOTE)


def serve(machine: Machine, cluster: Target, settings: Settings, port: int) -> None:
    """Until no token lives, or a signal ends it; raises DshpcError where it cannot begin."""
    cluster_facts.refuse_deaf(settings)
    facts = cluster_facts.gather(machine, cluster, settings, settings.place.most_gpus)
    folder = cluster.project.folder / tokens.FOLDER
    try:
        context = certificate.for_service(folder)
        there = listen(facts.address, port)
    except OSError as error:
        raise DshpcError(
            f"The join service cannot listen at {facts.address}:{port}.", str(error)
        ) from None
    desk = Desk(machine, cluster, facts, _log(cluster))
    desk.say(f"listening at {facts.address}:{port}")
    seats = Seats()
    try:
        with there:
            there.settimeout(_LOOK_S)
            while _is_needed(cluster):
                desk.tidy()
                with contextlib.suppress(OSError):
                    stream, peer = there.accept()
                    if not seats.take(peer[0]):
                        stream.close()
                        continue
                    talk = (desk, context, stream, peer[0], seats)
                    threading.Thread(target=_talk, args=talk, daemon=True).start()
    finally:
        desk.say("ended")
        desk.close()


@dataclass
class Seats:
    """Who is talked to: so many at once, and so few of one address that it keeps no other from joining."""

    _taken: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, address: str) -> bool:
        with self._lock:
            if sum(self._taken.values()) >= _MOST_AT_ONCE or self._taken[address] >= _MOST_OF_ONE:
                return False
            self._taken[address] += 1
            return True

    def leave(self, address: str) -> None:
        with self._lock:
            self._taken[address] -= 1
            self._taken += Counter()  # those of nobody go


def _is_needed(cluster: Target) -> bool:
    now = time.time()
    return any(
        each.lives(now) or (each.once and each.used_by and not each.revoked and now < each.until
                            and now < _used_at(cluster) + _GRACE_S)
        for each in tokens.read(cluster.project)
    )  # fmt: skip


def _used_at(cluster: Target) -> float:
    """When a token was used or made last."""
    return (cluster.project.folder / tokens.FILE).stat().st_mtime


def _talk(
    desk: Desk,
    context: ssl.SSLContext,
    stream: socket.socket,
    seen: str,
    seats: Seats,
) -> None:
    try:
        with contextlib.suppress(OSError, ValueError):
            _wait_for_first_byte(stream)
            with context.wrap_socket(stream, server_side=True) as safe:
                answer = desk.answer(messages.receive(safe, _TALK_S, messages.MOST_ASKED), seen)
                safe.settimeout(_TALK_S)
                safe.sendall(answer)
    finally:
        stream.close()
        seats.leave(seen)


def _wait_for_first_byte(stream: socket.socket) -> None:
    """Raises OSError where none comes."""
    stream.settimeout(_HELLO_S)
    if not stream.recv(1, socket.MSG_PEEK):
        raise ConnectionAbortedError
    stream.settimeout(_TALK_S)


def said(project: Project) -> str:
    """The end of its log; empty where it never ran."""
    try:
        text = (project.folder / LOG).read_text("utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(text.splitlines(keepends=True)[-_SHOWN_LINES:])


def _log(cluster: Target) -> Callable[[str], None]:
    path = cluster.project.folder / LOG
    lock = threading.Lock()

    def say(text: str) -> None:
        plain = "".join(char if char.isprintable() else "?" for char in text)[:500]
        with lock, contextlib.suppress(OSError):
            if path.exists() and path.stat().st_size > _MOST_LOG:
                path.replace(path.with_suffix(".old"))
            with path.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {plain}\n")
            path.chmod(0o600)

    return say
