"""Facts about a machine: all probes at once, each with a deadline, none able to stop another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from dshpc_setup.facts import (
    SECTIONS,
    Conclusion,
    Cpu,
    Engine,
    Evidence,
    Gpus,
    HostFacts,
    Memory,
    Platform,
    Section,
)
from dshpc_setup.machine import Ended, Machine, Say
from dshpc_setup.probes import amd, cpu, engine, gpus, intel, memory, nvidia, platform
from dshpc_setup.probes.look import Found

_Probe = Callable[[Machine, float], Found[Any]]

PROBES: tuple[tuple[str, _Probe, Section], ...] = (
    ("engine", engine.probe, "docker"),
    ("nvidia", nvidia.probe, "gpus"),
    ("amd", amd.probe, "gpus"),
    ("intel", intel.probe, "gpus"),
    ("platform", platform.probe, "platform"),
    ("cpu", cpu.probe, "cpu"),
    ("memory", memory.probe, "memory"),
)
"""All probes, and the section that each is for; the slow ones first, so that they start first.

A probe is given the machine and its seconds, and raises for nothing that a machine is like.
"""

_GPU_PROBES = ("nvidia", "amd", "intel")
DEADLINE_S = 10.0
# A probe's own report of a timeout says more than ours, so its deadline is earlier: by what the
# killing of a tool takes.
_HEADROOM_S = 0.4


def gather(
    machine: Machine,
    *,
    engine: bool = True,
    only: Collection[Section] = SECTIONS,
    deadline_s: float = DEADLINE_S,
) -> HostFacts:
    """Everything that can be known within the deadline. Never raises for what a machine is like.

    Without `engine` Docker is not asked (inside the container there is none to ask). Sections not
    in `only` are not looked at; the platform always is, since the GPUs hang on it.
    """
    wanted = {
        name: probe
        for name, probe, section in PROBES
        if (section in only or name == "platform") and (engine or name != "engine")
    }
    left_s = max(deadline_s / 2, deadline_s - _HEADROOM_S)
    ended = machine.apart(
        {name: _question(probe, machine, left_s) for name, probe in wanted.items()},
        deadline_s=deadline_s,
    )
    evidence: list[Evidence] = []
    conclusions: list[Conclusion] = []
    answers: dict[str, Any] = {}
    failures: dict[str, Evidence] = {}
    for name, end in ended.items():
        answer = end.items[0] if end.items else None
        if isinstance(answer, Found):
            answers[name] = answer.fact
            evidence += answer.evidence
            conclusions += answer.conclusions
        else:
            failures[name] = _failure(name, end)
            evidence.append(failures[name])
    where = answers.get("platform") or _bare_platform(machine, failures)
    return HostFacts(
        platform=where,
        cpu=answers.get("cpu") or Cpu(state=_state(failures, "cpu")),
        memory=answers.get("memory") or Memory(state=_state(failures, "memory")),
        gpus=_gpus(machine, where, answers, failures),
        engine=answers.get("engine") or _no_engine(failures.get("engine")),
        evidence=tuple(evidence),
        conclusions=tuple(conclusions),
    )


def _question(probe: _Probe, machine: Machine, left_s: float) -> Callable[[Say], None]:
    return lambda say: say(probe(machine, left_s))


def _failure(name: str, end: Ended) -> Evidence:
    """What is told of a probe that has told nothing itself."""
    state = "error" if end.state == "present" else end.state
    return Evidence(name, state, "", end.ms, end.detail or "the probe gave no answer")


def _state(failures: Mapping[str, Evidence], name: str) -> Any:
    return failures[name].state if name in failures else "unsupported"


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
        if name in answers or name in failures
    ]
    if not found:
        return Gpus("unsupported", detail="not looked for")
    return gpus.merge(found, simulated=machine.simulated is not None)


def _no_engine(failure: Evidence | None) -> Engine:
    if failure is not None:
        return Engine(failure.state, detail=failure.detail)
    return Engine("unsupported", detail="the engine was not asked")


def _bare_platform(machine: Machine, failures: Mapping[str, Evidence]) -> Platform:
    system, release, arch = machine.system
    kind = platform.kind_of(release, False) if system != "Darwin" else "macos"
    return replace(
        Platform(kind, kernel=release or None, arch=arch or None),
        state=_state(failures, "platform"),
    )
