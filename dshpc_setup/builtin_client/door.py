"""A machine whose container engine is the built-in one: what is asked of `docker` goes to its client."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from dshpc_setup import __version__, engine_client
from dshpc_setup.builtin import cache
from dshpc_setup.machine import CommandResult, Machine, Reply
from dshpc_setup.machine.changed import Changed

_DOCKER = engine_client.DOCKER.program[0]
COMPOSE = "2.0.0"
"""The version of Docker Compose whose words `compose` takes."""
_Answer = tuple[int, str, str]
"""Exit code, stdout and stderr."""
_KNOWN: dict[tuple[str, ...], _Answer] = {
    ("compose", "version", "--short"): (0, f"{COMPOSE}\n", ""),
    ("--version",): (125, "", "docker: '--version' is not a command of the built-in engine.\n"),
    ("buildx", "version"): (1, "", "docker: 'buildx' is not a command of the built-in engine.\n"),
}
"""Of Docker's plugins."""


def through(machine: Machine, place: str | None = None) -> Machine:
    """The machine, on which `docker` is the built-in engine's client. `place`: of its cache, where that is
    there and not the one of this environment."""
    there = place if place != cache.place(machine.env) and os.path.isdir(place or "") else None
    return cast("Machine", _Door(machine, there))


def _known(env: Mapping[str, str], words: list[str]) -> _Answer | None:
    """The answer to a question that changes nothing: no process is started for it."""
    if (known := _KNOWN.get(tuple(words))) is not None:
        return known
    from dshpc_setup.builtin_client import failing, looking, store

    try:
        told = looking.answer(store.Store(env), words)
    except failing.ClientError as error:
        return error.code, "", f"{error}\n"
    return None if told is None else (0, told, "")


def _result(
    argv: Sequence[str], known: _Answer, on_line: Callable[[str], None] | None
) -> CommandResult:
    code, out, err = known
    if on_line is not None:  # which hears both streams
        out, err = out + err, ""
        for line in out.splitlines():
            on_line(line)
    return CommandResult(tuple(argv), "present", code, out, err, 0.0)


class _Door(Changed):
    def __init__(self, machine: Machine, place: str | None) -> None:
        client = list(engine_client.builtin(place).program)
        self.env = {**machine.env, cache.PLACE: place} if place else machine.env

        def run(argv: Sequence[str], **more: Any) -> CommandResult:
            words = list(argv)
            at = engine_client.program_at(words)
            if words[at : at + 1] != [_DOCKER]:
                return machine.run(words, **more)
            known = _known(self.env, words[at + 1 :])
            if known is not None:
                return _result(argv, known, more.get("on_line"))
            words[at : at + 1] = client
            # Who keeps the answer knows it by the words that were asked with
            return replace(machine.run(words, **more), argv=tuple(argv))

        super().__init__(machine, run)

    def which(self, program: str) -> str | None:
        """The built-in client answers to the name itself; of Docker's other programs there is none."""
        if program == _DOCKER:
            return _DOCKER
        return None if program == "docker-compose" else self._machine.which(program)

    def docker(self, deadline_s: float) -> Reply:
        """What an engine's API would say of itself."""
        system, release, processor = self._machine.system
        info = {
            "ServerVersion": __version__,
            "KernelVersion": release,
            "OperatingSystem": "the built-in engine",
            "OSType": system.lower(),
            "Architecture": processor,
            "NCPU": os.cpu_count() or 0,
            "SecurityOptions": [],
            "Driver": "builtin",
            "LoggingDriver": "builtin",
            "Runtimes": {},
        }
        version = {
            "Version": __version__,
            "Platform": {"Name": engine_client.BUILTIN},
            "Os": "linux",
        }
        value = {
            "host": engine_client.BUILTIN,
            "context": "default",
            "version": version,
            "info": info,
        }
        return Reply("present", value, engine_client.BUILTIN)
