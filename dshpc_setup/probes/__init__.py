"""Facts about a machine: all probes at once, each with a deadline, none able to stop another."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dshpc_setup import gpu_vendors, lazy
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
from dshpc_setup.machine import Ended, Machine, Say, earlier
from dshpc_setup.probes import engine_limits, gpus
from dshpc_setup.probes.trace import Found, Trace, failure

_Probe = Callable[[Machine, float], Found[Any]]


def _of(module: str) -> _Probe:
    """The module's probe, imported where it is asked: beside the others, and only if it is."""

    def probe(machine: Machine, left_s: float) -> Found[Any]:
        found: Found[Any] = lazy.module(__name__, module).probe(machine, left_s)
        return found

    return probe


def _of_vendor(vendor: str) -> _Probe:
    """That of the vendor's folder, likewise."""

    def probe(machine: Machine, left_s: float) -> Found[Any]:
        module = gpu_vendors.aspect(vendor, "probe")
        if module is None:
            return Trace(machine).found(Gpus("unsupported", detail=f"{vendor} has no probe"))
        found: Found[Any] = module.probe(machine, left_s)
        return found

    return probe


PROBES: tuple[tuple[str, _Probe, Section], ...] = (
    ("engine", _of("engine"), "docker"),
    ("platform", _of("platform"), "platform"),
    ("cpu", _of("cpu"), "cpu"),
    ("memory", _of("memory"), "memory"),
    ("toolkit", _of("toolkit"), "docker"),
    ("cdi", _of("cdi"), "docker"),
)
"""The probes but those of the vendors, and the section that each is for; the slow ones first, so that they
start first.

A probe is given the machine and its seconds, and raises for nothing that a machine is like.
"""


def every_probe() -> tuple[tuple[str, _Probe, Section], ...]:
    """With those of the vendors, each under the vendor's name, behind the slowest."""
    section: Section = "gpus"
    own = tuple((name, _of_vendor(name), section) for name in gpu_vendors.names())
    return (*PROBES[:1], *own, *PROBES[1:])


# A section must not say something else because another was not asked for.
_HANGS_ON: Mapping[Section, tuple[Section, ...]] = {
    "gpus": ("platform",),
    "cpu": ("docker",),
    "memory": ("docker",),
}
_OF_THE_ENGINE = ("engine", "toolkit", "cdi")
_FOR_ITS_OWN = ("toolkit", "cdi")  # no other section hangs on them
_ABOUT: Mapping[str, str] = {
    "engine": "docker.state",
    "toolkit": "docker.toolkit",
    "cdi": "docker.cdi",
}
DEADLINE_S = 10.0
LONGER_S = 90.0  # a tool may take a third of it, and be asked in a second way
_LEAST_S = 0.5


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
    until = machine.clock() + deadline_s
    sections = {*only, *(each for section in only for each in _HANGS_ON.get(section, ()))}
    wanted = {
        name: probe
        for name, probe, section in every_probe()
        if section in (only if name in _FOR_ITS_OWN else sections)
        and (engine or name not in _OF_THE_ENGINE)
    }
    left_s = earlier(deadline_s)
    ended = machine.apart(
        {name: _question(probe, machine, left_s) for name, probe in wanted.items()},
        deadline_s=deadline_s,
    )
    got = _Got()
    for name, end in ended.items():
        got.take(name, end)
    docker = got.answers.get("engine") or _no_engine(got.failures.get("engine"))
    if "toolkit" in wanted:
        docker = _with_files(machine, docker, got, until)
    conclusions = got.conclusions + [
        Conclusion(
            _about(name),
            f"not known ({item.state})",
            (Because(item.source, item.detail or ""),),
        )
        for name, item in got.failures.items()
    ]
    answers, failures = got.answers, got.failures
    processors = answers.get("cpu") or Cpu(state=_state(failures, "cpu"))
    store = answers.get("memory") or Memory(state=_state(failures, "memory"))
    processors, store, conclusions = engine_limits.apply(processors, store, docker, conclusions)
    where = answers.get("platform") or _bare_platform(machine, failures)
    found, concluded = _gpus(machine, where, answers, failures)
    return HostFacts(
        platform=where,
        cpu=processors,
        memory=store,
        gpus=found,
        engine=docker,
        evidence=tuple(got.evidence),
        conclusions=(*conclusions, *concluded),
    )


def gather_surely(
    machine: Machine,
    say: Callable[[str], None],
    *,
    engine: bool = True,
    longer_s: float = LONGER_S,
) -> HostFacts:
    """The same for a run that acts on it: where an answer did not come, all are asked once more.

    With more time: on a busy machine a tool is slow, and not missing. What is silent then is in `late`
    of the facts.
    """
    facts = gather(machine, engine=engine)
    if not (late := facts.late()):
        return facts
    names = ", ".join(dict.fromkeys(item.probe for item in late))
    say(f"no answer yet from: {names}; asking once more, up to {longer_s:.0f} s")
    return gather(machine, engine=engine, deadline_s=longer_s)


@dataclass
class _Got:
    """What the probes have answered, and how those failed that have not."""

    answers: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, Evidence] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    conclusions: list[Conclusion] = field(default_factory=list)

    def take(self, name: str, end: Ended) -> Any:
        """The fact; None where there is none."""
        answer = end.items[0] if end.items else None
        if isinstance(answer, Found):
            self.answers[name] = answer.fact
            self.evidence += answer.evidence
            self.conclusions += answer.conclusions
            return answer.fact
        self.failures[name] = failure(name, end)
        self.evidence.append(self.failures[name])
        return None


def _with_files(machine: Machine, docker: Engine, got: _Got, until: float) -> Engine:
    """The engine with what this machine's files say of it; its own CDI folders are looked at now."""
    from dshpc_setup.probes import cdi, engine_join
    from dshpc_setup.probes.toolkit import Installed

    specs = got.answers.get("cdi", ())
    if more := [folder for folder in cdi.folders(docker) if folder not in cdi.FOLDERS]:
        left_s = max(_LEAST_S, until - machine.clock())
        ended = machine.apart(
            {"cdi": lambda say: say(cdi.probe_more(machine, more))}, deadline_s=left_s
        )
        specs += got.take("cdi", ended["cdi"]) or ()
    found, concluded = engine_join.join(docker, got.answers.get("toolkit", Installed()), specs)
    got.conclusions += concluded
    return found


def _about(name: str) -> str:
    return f"gpus {name}" if name in gpu_vendors.names() else _ABOUT.get(name, name)


def _question(probe: _Probe, machine: Machine, left_s: float) -> Callable[[Say], None]:
    return lambda say: say(probe(machine, left_s))


def _state(failures: Mapping[str, Evidence], name: str) -> Any:
    return failures[name].state if name in failures else "unsupported"


def _gpus(
    machine: Machine, where: Platform, answers: dict[str, Any], failures: dict[str, Evidence]
) -> tuple[Gpus, tuple[Conclusion, ...]]:
    found: dict[Vendor, Gpus] = {}
    for name in gpu_vendors.names():
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
