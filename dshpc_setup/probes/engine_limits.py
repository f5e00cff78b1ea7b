"""What the engine's own machine allows: Docker Desktop's virtual machine, a remote server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup.facts import Because, Conclusion, Cpu, Engine, Memory

_WHOSE = {
    "desktop": "{application}'s virtual machine",
    "remote": "the machine that the engine runs on",
}


def apply(
    cpu: Cpu, memory: Memory, engine: Engine, conclusions: Sequence[Conclusion]
) -> tuple[Cpu, Memory, list[Conclusion]]:
    """CPUs and memory by the least of all limits, the engine's among them; its reasons added."""
    if engine.state != "present":
        return cpu, memory, list(conclusions)
    kept = list(conclusions)
    named = _WHOSE.get(engine.kind or "", "the engine")
    whose = named.format(application=engine.application)
    if engine.cpus is not None and cpu.usable is not None and engine.cpus < cpu.usable:
        why = Because("docker info, NCPU", f"{whose} has {engine.cpus} CPUs")
        says = f"{engine.cpus} of {cpu.logical} CPUs, limited by engine"
        _replace(kept, Conclusion("cpu.usable", says, (why,)), f"{engine.cpus}")
        cpu = replace(cpu, usable=engine.cpus, limited_by="engine")
    size, limit = engine.memory_mib, memory.limit_mib
    if size is not None and limit is not None and size < limit:
        why = Because("docker info, MemTotal", f"{whose} has {size} MiB")
        says = f"{size} of {memory.total_mib} MiB, limited by engine"
        _replace(kept, Conclusion("memory.limit_mib", says, (why,)), f"{size} MiB")
        memory = replace(memory, limit_mib=size, limited_by="engine")
    return cpu, memory, kept


def _replace(conclusions: list[Conclusion], new: Conclusion, least: str) -> None:
    """`new` in the place of the conclusion about the same, whose reasons lose by it."""
    for number, old in enumerate(conclusions):
        if old.about == new.about:
            said = "; ".join(f"{item.source}: {item.says}" for item in old.because)
            lost = Because(old.says, f"{said}; more than {least}")
            conclusions[number] = replace(new, instead=(lost, *old.instead))
            return
    conclusions.append(new)
