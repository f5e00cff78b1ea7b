"""What the two sides of a join say to each other: a JSON object on one line each way, within TLS."""

from __future__ import annotations

import errno
import ipaddress
import json
import math
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from dshpc_setup import codec
from dshpc_setup.documents import foreign
from dshpc_setup.environment.declaration import FILES
from dshpc_setup.environment.model import LOCK
from dshpc_setup.settings import texts

PROTOCOL = 1
ENVIRONMENT_FILES = (*FILES, LOCK)  # those that make the image, of the folder `environment`
MOST_BYTES = 4 << 20
MOST_ASKED = 1 << 20  # who asks has shown nothing yet, and many may
_MOST_ERROR = 4096  # errno(3)
Ask = Literal["facts", "reach", "take", "done"]
Code = Literal[
    "unknown", "expired", "revoked", "used",  # the token
    "busy", "malformed", "protocol",  # the question
    "name", "slurm", "slurm-old", "slurm-user", "nat", "cluster",  # the cluster, or the machine that asks
]  # fmt: skip
_T = TypeVar("_T")


@dataclass(frozen=True)
class Question:
    protocol: int
    ask: Ask
    id: str
    secret: str
    node: str
    value: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError for a node of no name that a join gives one: it stands in files and commands."""
        texts.prefix(self.node)


@dataclass(frozen=True)
class Refused:
    """`details` in the words of who refused; what to do is for who asked to say."""

    code: Code
    details: str = ""


@dataclass(frozen=True)
class Answer:
    value: Mapping[str, Any] | None = None
    refused: Refused | None = None


@dataclass(frozen=True)
class Probe:
    """A file in the controller's work folder: what it holds, and whose it is there."""

    name: str
    text: str
    uid: int
    gid: int


@dataclass(frozen=True)
class Facts:
    """The cluster. `settings`: name -> text, those that all nodes have alike and those of the image."""

    prefix: str
    address: str
    slurm_ports: tuple[int, int]
    srun_ports: tuple[int, int]
    settings: Mapping[str, str]
    environment: Mapping[str, str]  # files of `environment/`: what goes into the image
    most_gpus: int
    work: str
    slurm: str  # its version
    slurm_uid: int
    version: str  # of dsHPC setup
    firewall: str  # which one the controller's machine has
    clock: float  # seconds of the epoch, as the answer is sent
    probe: Probe | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for what the other side cannot have meant: an address stands in commands that are
        to be typed here as root, and files are written."""
        _need_address(self.address)
        for port in (*self.slurm_ports, *self.srun_ports):
            _need_port(port)
        if self.srun_ports[0] > self.srun_ports[1]:
            raise ValueError("the ports of srun end before they begin")
        if not self.work.startswith("/") or not self.work.isprintable():
            raise ValueError("the work folder is no absolute path")
        if self.settings.get("prefix", self.prefix) != self.prefix:
            raise ValueError("the cluster has two names")
        if not math.isfinite(self.clock):
            raise ValueError("the clock is none")
        for name in self.environment:
            if name not in ENVIRONMENT_FILES:
                raise ValueError(f"{name!r} is no file of an environment")


@dataclass(frozen=True)
class Reach:
    """The machine that asks listens there meanwhile."""

    address: str
    slurmd_port: int
    srun_port: int

    def __post_init__(self) -> None:
        """Raises ValueError for what is no place to listen at."""
        _need_address(self.address)
        _need_port(self.slurmd_port)
        _need_port(self.srun_port)


@dataclass(frozen=True)
class Reached:
    """Error numbers of what could not be reached, None where it was. `listens`: a port of srun's range at
    which the controller's machine listens for some seconds, 0 where none is free."""

    slurmd: int | None
    srun: int | None
    seen: str  # the address that the question came from
    listens: int

    def __post_init__(self) -> None:
        """Raises ValueError for what is no error's number, and no port."""
        for number in (self.slurmd, self.srun):
            if number is not None and not 0 < number < _MOST_ERROR:
                raise ValueError(f"{number} is no error's number")
        if self.listens:
            _need_port(self.listens)


@dataclass(frozen=True)
class Take:
    """Of the image that was made there: Slurm's version, and the number of its user."""

    slurm: str
    slurm_uid: int


@dataclass(frozen=True)
class Given:
    """The key, as one container gives it to the other."""

    given: str


@dataclass(frozen=True)
class Done:
    """The users of the machine that has joined, as lines of a passwd file."""

    users: str = ""


def _need_address(text: str) -> None:
    ipaddress.IPv4Address(text)


def _need_port(number: int) -> None:
    if not 0 < number < 1 << 16:
        raise ValueError(f"{number} is no port")


def to_line(value: Any, schema: str) -> bytes:
    return json.dumps(codec.to_json(value, schema)).encode() + b"\n"


def from_line(kind: type[_T], line: bytes, schema: str) -> _T:
    """Raises ValueError."""
    return codec.from_json(kind, foreign.value(line, most_bytes=MOST_BYTES), schema)


def of_mapping(kind: type[_T], value: Mapping[str, Any] | None) -> _T:
    """Raises ValueError."""
    return codec.from_json(kind, value)


def receive(stream: socket.socket, within_s: float, most: int = MOST_BYTES) -> bytes:
    """One line, whole within that time however slowly it comes; raises OSError, and ValueError for what has
    no end within the limit."""
    found = bytearray()
    until = time.monotonic() + within_s
    while not found.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        stream.settimeout(left)
        part = stream.recv(65536)
        if not part:
            raise ValueError("the other side has ended before its line did")
        found += part
        if len(found) > most:
            raise ValueError("a line is longer than any of ours")
    return bytes(found)


QUESTION, ANSWER = "dshpc.join-question/1", "dshpc.join-answer/1"
