"""How much of each GPU's memory is in use now, by whatever program."""

from __future__ import annotations

from collections.abc import Iterator

from dshpc_setup.diagnose.common import named
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.observed.model import GpuMemory, MemoryUse
from dshpc_setup.probes import readings
from dshpc_setup.probes.readings import Reading

DEADLINE_S = 3.0


def can_be_asked(facts: HostFacts) -> bool:
    """Whether there are GPUs; a driver that gave no answer is not asked again."""
    hung = any(item.state == "timeout" for item in facts.evidence)
    return facts.gpus.state == "present" and not facts.gpus.simulated and not hung


def in_use(machine: Machine, facts: HostFacts) -> GpuMemory:
    """Of the GPUs that are listed; `absent` where nobody can be asked."""
    if not can_be_asked(facts):
        return GpuMemory("absent")
    found = readings.gather(machine, facts.gpus, DEADLINE_S)
    pairs = zip(facts.gpus.devices, found.devices, strict=True)
    used = tuple(item for gpu, reading in pairs for item in _of(gpu, reading))
    if used:
        return GpuMemory("present", used)
    return GpuMemory("timeout" if found.hung else "unsupported")


def _of(gpu: GpuDevice, reading: Reading) -> Iterator[MemoryUse]:
    """Of a card in MIG mode each instance; what shares the machine's memory has none of its own."""
    if gpu.unified_memory or gpu.problems:
        return
    if gpu.mig_mode != "enabled":
        total = gpu.memory_mib or reading.memory_total_mib
        if total and reading.memory_used_mib is not None:
            yield MemoryUse(named(gpu), reading.memory_used_mib, total)
        return
    for place, instance in enumerate(gpu.mig):
        part = reading.part(instance.uuid, place)
        total = instance.memory_mib or part.memory_total_mib
        if total and part.memory_used_mib is not None:
            name = f"{named(gpu)}, instance {place} ({instance.profile})"
            yield MemoryUse(name, part.memory_used_mib, total)
