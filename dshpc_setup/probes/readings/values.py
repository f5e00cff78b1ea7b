"""What one GPU measures at a moment: frozen values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dshpc_setup.facts import Evidence, State, Vendor

_MOST = {  # beyond these it is no measurement, whatever a driver says
    "utilization_percent": 100,
    "temperature_c": 250,
    "power_w": 100_000,
    "power_limit_w": 100_000,
    "sm_clock_mhz": 100_000,
    "memory_clock_mhz": 100_000,
}


@dataclass(frozen=True)
class PartReading:
    """A MIG instance's memory: NVML measures nothing else of one."""

    uuid: str | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None


@dataclass(frozen=True)
class Reading:
    """What one GPU measures now."""

    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    mig: tuple[PartReading, ...] = ()
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    energy_mj: int | None = None  # since the driver was loaded
    ecc_corrected: int | None = None  # errors since then
    ecc_uncorrected: int | None = None

    def part(self, uuid: str | None, position: int = 0) -> PartReading:
        """The MIG instance of that UUID; where none has one, that in this position."""
        if uuid is None and all(each.uuid is None for each in self.mig[: position + 1]):
            return self.mig[position] if position < len(self.mig) else PartReading()
        return next((each for each in self.mig if each.uuid == uuid), PartReading(uuid))

    def parted(self, uuids: tuple[str | None, ...]) -> Reading:
        """With the instances' UUIDs, where the driver's tool leaves them out."""
        if len(uuids) != len(self.mig) or any(each.uuid for each in self.mig):
            return self
        pairs = zip(self.mig, uuids, strict=True)
        return replace(self, mig=tuple(replace(each, uuid=uuid) for each, uuid in pairs))

    def plausible(self) -> Reading:
        """Without values that no GPU can have."""
        wrong = {
            key: None
            for key, most in _MOST.items()
            if (value := getattr(self, key)) is not None and not 0 <= value <= most
        }
        return replace(self, **wrong)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Readings:
    """One Reading for each device, in the devices' order; how the asking went, by vendor."""

    devices: tuple[Reading, ...] = ()
    states: tuple[tuple[Vendor, State], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    lost: tuple[int, ...] = ()  # indexes of GPUs that were listed, and of which nothing is said now

    @property
    def hung(self) -> bool:
        return any(state == "timeout" for _, state in self.states)

    @property
    def refused(self) -> bool:
        """Whether a vendor's values could not be asked, whatever the reason."""
        failed = any(state in ("timeout", "denied", "error") for _, state in self.states)
        return failed or bool(self.lost)


Answer = tuple[State, Mapping[int, Reading]]
"""How a vendor's asking went, and the readings by the device's index."""


@dataclass(frozen=True)
class Watch:
    """Asked again and again: the readings by the device's index, within a deadline."""

    now: Callable[[float], Mapping[int, Reading]]
    close: Callable[[], None]
