"""The device nodes that a job opens: a GPU that a library or a tool lists, without them, is no job's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dshpc_setup.facts import Because, Disagreement, GpuDevice
from dshpc_setup.machine import Machine
from dshpc_setup.problems import NO_NODE


def marked(machine: Machine, device: GpuDevice, shared: Sequence[str] = ()) -> GpuDevice:
    """With the problem NO_NODE where one of its nodes, or of those it shares, is no device node.

    The nodes of MIG instances are not counted: the driver's tools make them as they are first used.
    """
    files = (*device.device_files, *shared) if device.device_files else ()
    if all(machine.is_device(path) for path in files):
        return device
    return replace(device, problems=(*device.problems, NO_NODE))


def missing(
    machine: Machine, devices: Sequence[GpuDevice], teller: str, shared: Sequence[str] = ()
) -> list[Disagreement]:
    """Each node of theirs that is not there, once."""
    found: dict[str, Disagreement] = {}
    for device in devices:
        if not device.device_files:
            continue
        parts = (path for part in device.mig for path in part.device_files)
        for path in dict.fromkeys((*device.device_files, *parts, *shared)):
            if path in found or machine.is_device(path):
                continue
            there = "is no device node" if machine.exists(path) else "is not there"
            label = device.name or device.uuid or f"GPU {device.index}"
            layers = (Because(teller, f"lists {label}"), Because(path, there))
            meaning = "no program can open the GPU without it, and no job gets it"
            if path not in (*device.device_files, *shared):
                meaning = "no program can open the MIG instance before it is made"
            found[path] = Disagreement(path, layers, meaning, NO_NODE)
    return list(found.values())
