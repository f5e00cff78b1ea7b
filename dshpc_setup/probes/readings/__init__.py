"""What GPUs measure now: use, temperature, power, memory in use; asked device by device.

Facts (`facts.py`) are what a GPU is, readings what it does at this moment. A value that is not known
is None: no driver tells them all, and a card that is cut into parts has some for the whole card only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import Evidence, GpuDevice, Gpus, State, Vendor
from dshpc_setup.machine import Machine, Say, earlier
from dshpc_setup.probes.readings.values import Answer, PartReading, Reading, Readings, Watch
from dshpc_setup.probes.trace import Found, Trace, failure

__all__ = ["PartReading", "Reading", "Readings", "Watch", "gather", "watch"]


def gather(machine: Machine, gpus: Gpus, deadline_s: float) -> Readings:
    """What the listed GPUs measure, within the deadline. Never raises for what a machine is like."""
    nothing = tuple(Reading() for _ in gpus.devices)
    if gpus.simulated:
        made_up = "made-up GPUs measure nothing"
        seen = Evidence("readings", "unsupported", "simulated", 0.0, made_up)
        return Readings(nothing, (), (seen,))
    by_vendor = {
        vendor: devices
        for vendor in gpu_vendors.names()
        if (devices := tuple(each for each in gpus.devices if each.vendor == vendor))
    }
    left_s = earlier(deadline_s)
    ended = machine.apart(
        {vendor: _question(machine, vendor, by_vendor[vendor], left_s) for vendor in by_vendor},
        deadline_s=deadline_s,
    )
    found: dict[int, Reading] = {}
    states: list[tuple[Vendor, State]] = []
    evidence: list[Evidence] = []
    lost: list[int] = []
    for vendor in by_vendor:
        end = ended[vendor]
        answer = end.items[0] if end.items else None
        if isinstance(answer, Found):
            state, readings = answer.fact
            found.update(readings)
            evidence += answer.evidence
            if gpu_vendors.of(vendor).lists_all:
                lost += _lost(by_vendor[vendor], state, readings)
        else:
            evidence.append(failure(f"{vendor}-readings", end))
            state = evidence[-1].state
        states.append((vendor, state))
    in_order = tuple(found.get(device.index, Reading()) for device in gpus.devices)
    return Readings(in_order, tuple(states), tuple(evidence), tuple(lost))


def watch(machine: Machine, gpus: Gpus) -> Watch:
    """All GPUs again and again, until it is closed: by vendor, as cheaply as each can be asked."""
    watches: list[Watch] = []
    others: list[GpuDevice] = []
    for vendor in gpu_vendors.names():
        own = tuple(device for device in gpus.devices if device.vendor == vendor)
        made = getattr(gpu_vendors.aspect(vendor, "readings"), "watch", None) if own else None
        if made is None:
            others += own
        else:
            watches.append(made(machine, own))
    rest = replace(gpus, devices=tuple(others))

    def now(deadline_s: float) -> Mapping[int, Reading]:
        found: dict[int, Reading] = {}
        for each in watches:
            found.update(each.now(deadline_s))
        if others:
            told = gather(machine, rest, deadline_s).devices
            found.update((gpu.index, one) for gpu, one in zip(others, told, strict=True))
        return found

    def close() -> None:
        for each in watches:
            each.close()

    return Watch(now, close)


def _lost(
    devices: tuple[GpuDevice, ...], state: State, readings: Mapping[int, Reading]
) -> list[int]:
    """Those that the driver listed by a UUID, and that are not in its answer, or it is gone."""
    if state not in ("present", "absent"):
        return []
    named = (gpu for gpu in devices if gpu.uuid and not gpu.problems)
    return [gpu.index for gpu in named if gpu.index not in readings]


def _question(
    machine: Machine, vendor: Vendor, devices: tuple[GpuDevice, ...], left_s: float
) -> Callable[[Say], None]:
    def ask(say: Say) -> None:
        # imported where it is asked: beside the others, and only if it is
        module = gpu_vendors.aspect(vendor, "readings")
        look = Trace(machine)
        answer: Answer = ("absent", {}) if module is None else module.ask(look, devices, left_s)
        say(look.found(answer))

    return ask
