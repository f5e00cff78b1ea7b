"""Facts about a machine: all probes at once, each with a deadline, none able to stop another."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dshpc_setup.facts import Cpu, Engine, Evidence, Gpus, HostFacts, Memory, Platform
from dshpc_setup.machine import Machine
from dshpc_setup.probes import amd, cpu, engine, gpus, intel, memory, nvidia, platform

_Answer = tuple[Any, tuple[Evidence, ...]]
_Probe = Callable[[Machine, float], _Answer]

PROBES: tuple[tuple[str, _Probe], ...] = (
    ("engine", lambda machine, left_s: engine.probe(machine, deadline_s=left_s)),
    ("nvidia", lambda machine, left_s: nvidia.probe(machine, deadline_s=left_s)),
    ("amd", lambda machine, left_s: amd.probe(machine, deadline_s=left_s)),
    ("intel", lambda machine, _: intel.probe(machine)),
    ("platform", lambda machine, _: platform.probe(machine)),
    ("cpu", lambda machine, _: cpu.probe(machine)),
    ("memory", lambda machine, _: memory.probe(machine)),
)
"""All probes; the slow ones first, so that they start first."""

_GPU_PROBES = ("nvidia", "amd", "intel")
# A probe's own report of a timeout says more than ours: its deadline is a little earlier.
_HEADROOM_S = 0.1
_GRACE_S = 0.2


def gather(machine: Machine, *, engine: bool = True, deadline_s: float = 10.0) -> HostFacts:
    """Everything that can be known within the deadline. Never raises for what a machine is like.

    Without `engine` Docker is not asked (inside the container there is none to ask).
    """
    wanted = [item for item in PROBES if engine or item[0] != "engine"]
    started = machine.clock()
    running = [_Running(name, probe, machine, deadline_s - _HEADROOM_S) for name, probe in wanted]
    evidence: list[Evidence] = []
    answers: dict[str, Any] = {}
    failures: dict[str, Evidence] = {}
    for item in running:
        item.wait(started + deadline_s + _GRACE_S - machine.clock())
        answer = item.answer
        if answer is not None:
            answers[item.name] = answer[0]
            evidence += answer[1]
        else:
            failures[item.name] = item.failure((machine.clock() - started) * 1000)
            evidence.append(failures[item.name])
    where = answers.get("platform") or _bare_platform(machine)
    return HostFacts(
        platform=where,
        cpu=answers.get("cpu") or Cpu(logical=1, usable=1),
        memory=answers.get("memory") or Memory(1024, 1024),
        gpus=_gpus(machine, where, answers, failures),
        engine=answers.get("engine") or _no_engine(failures.get("engine")),
        evidence=tuple(evidence),
    )


class _Running:
    """A probe in a thread that does not hold up the exit, should it never end."""

    def __init__(self, name: str, probe: _Probe, machine: Machine, deadline_s: float) -> None:
        self.name = name
        self.answer: _Answer | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(probe, machine, deadline_s), name=f"probe-{name}", daemon=True
        )
        self._thread.start()

    def _run(self, probe: _Probe, machine: Machine, deadline_s: float) -> None:
        try:
            self.answer = probe(machine, deadline_s)
        except BaseException as error:  # noqa: BLE001  (an error of ours is a fact like any other)
            self._error = error

    def wait(self, seconds: float) -> None:
        self._thread.join(max(0.0, seconds))
        if self._error is not None and not isinstance(self._error, Exception):
            raise self._error  # Ctrl-C, and a test's alarm, are nobody's fact

    def failure(self, ms: float) -> Evidence:
        if self._error is None:
            return Evidence(self.name, "timeout", "", round(ms, 1), "no answer before the deadline")
        text = f"{type(self._error).__name__}: {self._error}"
        return Evidence(self.name, "error", "", round(ms, 1), text)


def _gpus(
    machine: Machine, where: Platform, answers: dict[str, Any], failures: dict[str, Evidence]
) -> Gpus:
    if machine.simulated is None and (never := gpus.unsupported(where)):
        return never
    found = [
        answers[name]
        if name in answers
        else Gpus(failures[name].state, detail=f"{name}: {failures[name].detail}")
        for name in _GPU_PROBES
    ]
    return gpus.merge(found, simulated=machine.simulated is not None)


def _no_engine(failure: Evidence | None) -> Engine:
    if failure is not None:
        return Engine(failure.state, detail=failure.detail)
    return Engine("unsupported", detail="the engine is not asked from inside the container")


def _bare_platform(machine: Machine) -> Platform:
    system, release, arch = machine.system
    return Platform("macos" if system == "Darwin" else "linux", kernel=release, arch=arch)
