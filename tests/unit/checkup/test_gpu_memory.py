"""GPU memory in use, of recorded machines whose drivers measure it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.checkup import gpu_memory
from dshpc_setup.facts import Evidence, HostFacts
from dshpc_setup.machine import Machine, Reply
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.observed.model import GpuMemory
from tests.unit.diagnose.known import known

MACHINES = Path(__file__).parents[2] / "machines"
MIB = 1 << 20


class Measured(RecordedMachine):
    """Its NVML says how much memory is in use: of each card, and of instances of the first."""

    def __init__(self, name: str, used: list[int], parts: list[int] | None = None) -> None:
        super().__init__(MACHINES / name)
        uuids = [gpu.uuid for gpu in known(name).facts.gpus.devices]
        mig = [part.uuid for gpu in known(name).facts.gpus.devices[:1] for part in gpu.mig]
        self.value = {"devices": [
            {"index": at, "uuid": uuids[at], "memory_used_bytes": mib * MIB,
             "mig": [{"uuid": uuid, "memory_used_bytes": mib * MIB}
                     for uuid, mib in zip(mig, parts or [], strict=False)]}
            for at, mib in enumerate(used)
        ]}  # fmt: skip

    def nvml_readings(self, deadline_s: float) -> Reply:
        assert deadline_s <= gpu_memory.DEADLINE_S
        return Reply("present", self.value, "libnvidia-ml.so.1")


class Silent(RecordedMachine):
    """Its driver may not be asked."""

    def nvml_readings(self, deadline_s: float) -> Reply:
        raise AssertionError("a driver that hangs was asked again")


def of(name: str, machine: Machine, **changes: object) -> GpuMemory:
    facts: HostFacts = replace(known(name).facts, **changes)  # type: ignore[arg-type]
    return gpu_memory.in_use(machine, facts)


def test_each_card() -> None:
    seen = of("a100x2", Measured("a100x2", [81000, 3]))
    assert seen.state == "present"
    assert [item.used_mib for item in seen.used] == [81000, 3]
    devices = known("a100x2").facts.gpus.devices
    assert [item.total_mib for item in seen.used] == [gpu.memory_mib for gpu in devices]
    assert all(
        str(gpu.pci_bus_id) in item.name for gpu, item in zip(devices, seen.used, strict=True)
    )


def test_a_card_in_mig_mode_by_its_instances() -> None:
    seen = of("h100-mig", Measured("h100-mig", [500], [7, 8]))
    first = known("h100-mig").facts.gpus.devices[0].mig
    assert [item.used_mib for item in seen.used][:2] == [7, 8]
    assert first[0].profile in seen.used[0].name
    assert seen.used[0].total_mib == first[0].memory_mib


@pytest.mark.parametrize("name", ["vm-no-gpu", "workstation-rtx4090-nvml-hangs"])
def test_no_driver_is_asked_for_nothing(name: str) -> None:
    assert of(name, Silent(MACHINES / name)) == GpuMemory("absent")


def test_a_driver_that_hung_is_not_asked_again() -> None:
    evidence = (Evidence("nvml", "timeout", "libnvidia-ml.so.1", 7000.0),)
    machine = Silent(MACHINES / "a100x2")
    assert of("a100x2", machine, evidence=evidence) == GpuMemory("absent")


def test_memory_that_the_processor_shares_is_not_the_gpus() -> None:
    here = known("a100x2").facts.gpus
    shared = replace(here, devices=tuple(replace(gpu, unified_memory=True) for gpu in here.devices))
    seen = of("a100x2", Measured("a100x2", [5, 6]), gpus=shared)
    assert seen == GpuMemory("unsupported")


def test_a_tool_that_says_nothing_of_it() -> None:
    nothing = Measured("a100x2", [])
    assert of("a100x2", nothing) == GpuMemory("unsupported")
