"""Facts about a machine: all probes at once, each with a deadline, none able to stop another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from dshpc_setup.facts import (
    SECTIONS,
    Because,
    Conclusion,
    Cpu,
    Engine,
    Evidence,
    Gpus,
    HostFacts,
    Memory,
    Platform,
    Section,
    Vendor,
)
from dshpc_setup.machine import Machine, Say, earlier
from dshpc_setup.probes import engine_limits, gpus
from dshpc_setup.probes.look import Found, failure

_Probe = Callable[[Machine, float], Found[Any]]


def _of(module: str) -> _Probe:
    """The module's probe, imported where it is asked: beside the others, and only if it is."""

    def probe(machine: Machine, left_s: float) -> Found[Any]:
        found: Found[Any] = import_module(f"{__name__}.{module}").probe(machine, left_s)
        return found

    return probe


PROBES: tuple[tuple[str, _Probe, Section], ...] = (
    ("engine", _of("engine"), "docker"),
    ("nvidia", _of("nvidia.probe"), "gpus"),
    ("amd", _of("amd.probe"), "gpus"),
    ("intel", _of("intel"), "gpus"),
    ("platform", _of("platform"), "platform"),
    ("cpu", _of("cpu"), "cpu"),
    ("memory", _of("memory"), "memory"),
)
"""All probes, and the section that each is for; the slow ones first, so that they start first.

A probe is given the machine and its seconds, and raises for nothing that a machine is like.
"""

# A section must not say something else because another was not asked for.
_HANGS_ON: Mapping[Section, tuple[Section, ...]] = {
    "gpus": ("platform",),
    "cpu": ("docker",),
    "memory": ("docker",),
}
_ABOUT: Mapping[str, str] = {
    "engine": "docker.state",
    "nvidia": "gpus nvidia",
    "amd": "gpus amd",
    "intel": "gpus intel",
}
_VENDORS: tuple[Vendor, ...] = ("nvidia", "amd", "intel")  # each has a probe of its name
DEADLINE_S = 10.0


def gather(
    machine: Machine,
    *,
    engine: bool = True,
    only: Collection[Section] = SECTIONS,
    deadline_s: float = DEADLINE_S,
) -> HostFacts:
    """Everything that can be known within the deadline. Never raises for what a machine is like.

    Without `engine` Docker is not asked (inside the container there is none to ask). Sections not
    in `only` are not looked at, but for what those in it hang on.
    """
    sections = {*only, *(each for section in only for each in _HANGS_ON.get(section, ()))}
    wanted = {
        name: probe
        for name, probe, section in PROBES
        if section in sections and (engine or name != "engine")
    }
    left_s = earlier(deadline_s)
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
            failures[name] = failure(name, end)
            evidence.append(failures[name])
    conclusions += [
        Conclusion(
            _ABOUT.get(name, name),
            f"not known ({item.state})",
            (Because(item.source, item.detail or ""),),
        )
        for name, item in failures.items()
    ]
    processors = answers.get("cpu") or Cpu(state=_state(failures, "cpu"))
    store = answers.get("memory") or Memory(state=_state(failures, "memory"))
    docker = answers.get("engine") or _no_engine(failures.get("engine"))
    processors, store, conclusions = engine_limits.apply(processors, store, docker, conclusions)
    where = answers.get("platform") or _bare_platform(machine, failures)
    found, concluded = _gpus(machine, where, answers, failures)
    return HostFacts(
        platform=where,
        cpu=processors,
        memory=store,
        gpus=found,
        engine=docker,
        evidence=tuple(evidence),
        conclusions=(*conclusions, *concluded),
    )


def _question(probe: _Probe, machine: Machine, left_s: float) -> Callable[[Say], None]:
    return lambda say: say(probe(machine, left_s))


def _state(failures: Mapping[str, Evidence], name: str) -> Any:
    return failures[name].state if name in failures else "unsupported"


def _gpus(
    machine: Machine, where: Platform, answers: dict[str, Any], failures: dict[str, Evidence]
) -> tuple[Gpus, tuple[Conclusion, ...]]:
    found: dict[Vendor, Gpus] = {}
    for name in _VENDORS:
        if name in answers:
            found[name] = answers[name]
        elif name in failures:
            found[name] = Gpus(failures[name].state, detail=f"{name}: {failures[name].detail}")
    if not found:
        return Gpus("unsupported", detail="not looked for"), ()
    if machine.simulated is None and (never := gpus.unsupported(where)):
        return never, (gpus.conclude_never(where, never),)
    merged = gpus.merge(tuple(found.values()), simulated=machine.simulated is not None)
    return merged, (gpus.conclude(found, merged),)


def _no_engine(failure: Evidence | None) -> Engine:
    if failure is not None:
        return Engine(failure.state, detail=failure.detail)
    return Engine("unsupported", detail="the engine was not asked")


def _bare_platform(machine: Machine, failures: Mapping[str, Evidence]) -> Platform:
    from dshpc_setup.probes import platform

    system, release, arch = machine.system
    kind = platform.kind_of(release, False) if system != "Darwin" else "macos"
    return replace(
        Platform(kind, kernel=release or None, arch=arch or None),
        state=_state(failures, "platform"),
    )
