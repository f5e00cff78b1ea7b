"""A machine whose container engine is Podman, by its own command: what is asked of `docker` goes there."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from dshpc_setup import engine_client
from dshpc_setup.machine import CommandResult, Machine, Reply
from dshpc_setup.machine.changed import Changed
from dshpc_setup.podman_client import about, compose, words
from dshpc_setup.podman_client.about import About
from dshpc_setup.podman_client.service import Here

_DOCKER = engine_client.DOCKER.program[0]
PODMAN = engine_client.PODMAN
_INFO = (PODMAN, "info", "--format", "json")
_INFO_S = 20.0
_KEPT = 500
_LIMITS = {"nofile": "Max open files", "nproc": "Max processes"}


def through(machine: Machine) -> Machine:
    """The machine, on which `docker` is Podman."""
    return cast("Machine", _Door(machine))


def ask(machine: Machine, deadline_s: float = _INFO_S) -> tuple[About | None, CommandResult]:
    """What Podman says of itself; None where it does not, and how it ended."""
    done = machine.run(_INFO, deadline_s=deadline_s)
    if not done.ok:
        return None, done
    try:
        return about.parse(done.stdout), done
    except ValueError as error:
        return None, replace(done, code=1, stderr=f"podman info cannot be understood: {error}")


def here(machine: Machine, found: About | None) -> Here:
    """Without an answer: a user's Podman that may write no control group."""
    rootless = machine.uid != 0 if found is None else found.rootless
    if found is None or not rootless:
        controllers = frozenset[str]() if found is None else found.controllers
        return Here(rootless, controllers, limits={} if rootless else _limits(machine))
    uids, gids = (machine.uid, found.uids), (os.getgid(), found.gids)
    return Here(rootless, found.controllers, uids, gids)


def _limits(machine: Machine) -> Mapping[str, int]:
    """What this process may have at most, of what Podman sets to a million for root."""
    told = machine.read("/proc/self/limits").text or ""
    most = {}
    for name, line in _LIMITS.items():
        found = re.search(rf"^{line} +\S+ +(\d+)", told, re.MULTILINE)
        if found is not None:
            most[name] = int(found[1])
    # Podman lowers its own number of processes to the kernel's, and cannot raise it again
    pids = (machine.read("/proc/sys/kernel/pid_max").text or "").strip()
    if "nproc" in most and pids.isdigit():
        most["nproc"] = min(most["nproc"], int(pids))
    return most


class _Door(Changed):
    def __init__(self, machine: Machine) -> None:
        self._here: Here | None = None

        def run(argv: Sequence[str], **more: Any) -> CommandResult:
            at = engine_client.program_at(argv)
            if list(argv[at : at + 1]) != [_DOCKER]:
                return machine.run(argv, **more)
            return replace(self._docker(argv[:at], list(argv[at + 1 :]), **more), argv=tuple(argv))

        super().__init__(machine, run)

    def which(self, program: str) -> str | None:
        """Podman answers to the name; of Docker's other programs there is none."""
        if program == _DOCKER:
            return _DOCKER if self._machine.which(PODMAN) is not None else None
        return None if program == "docker-compose" else self._machine.which(program)

    def docker(self, deadline_s: float) -> Reply:
        """What an engine's API would say of it."""
        found, done = ask(self._machine, deadline_s)
        if found is not None:
            value = about.as_docker_says(found, self._machine.system[1], PODMAN)
            return Reply("present", value, PODMAN)
        where = {"host": PODMAN, "context": "default"}
        if done.state == "absent":
            return Reply("absent", where, PODMAN, "the program podman is not in PATH")
        state = "error" if done.state == "present" else done.state
        detail = done.text[-_KEPT:] or f"no answer within {deadline_s:g} s"
        return Reply(state, where, PODMAN, detail, done.code)

    def _docker(self, before: Sequence[str], asked: list[str], **more: Any) -> CommandResult:
        verb = asked[:1]
        if verb == ["compose"]:
            return self._compose(asked, **more)
        if verb == ["context"]:
            return CommandResult((), "present", 0, "default\n", "", 0.0)
        if verb == ["buildx"]:
            return CommandResult((), "absent", None, "", "", 0.0)
        needs_here = verb == ["run"]
        there = words.asked(asked, self._known() if needs_here else Here(rootless=False))
        return self._podman(there, before=before, **more)

    def _podman(
        self, there: Sequence[str], *, before: Sequence[str] = (), **more: Any
    ) -> CommandResult:
        done = self._machine.run([*before, PODMAN, *there], **more)
        stdout, stderr = words.answered(there, done.stdout, done.stderr, done.code)
        return replace(done, stdout=stdout, stderr=stderr)

    def _known(self) -> Here:
        if self._here is None:
            self._here = here(self._machine, ask(self._machine)[0])
        return self._here

    def _compose(
        self,
        asked: list[str],
        *,
        deadline_s: float,
        stdin: bytes | str | None = None,
        cwd: str | None = None,
        on_line: Callable[[str], None] | None = None,
        **_: Any,
    ) -> CommandResult:
        work = compose.Work(
            self._podman,
            self._known,
            time.monotonic() + deadline_s,
            on_line if on_line is not None else (lambda _: None),
        )
        text = stdin.decode(errors="replace") if isinstance(stdin, bytes) else stdin or ""
        return compose.run(asked, work, stdin=text, cwd=cwd)
