"""The links in /dev/char by which systemd knows the device nodes that a container may open.

Linux makes them for its own drivers' nodes by udev; NVIDIA's nodes are made otherwise, and have none
until somebody makes them. Source: NVIDIA/nvidia-container-toolkit issue 48.
"""

from __future__ import annotations

from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.observed.model import DeviceLinks

FOLDER = "/dev/char"
_SHARED = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def device_links(machine: Machine, facts: HostFacts) -> DeviceLinks:
    """Of the nodes that are there; `absent` where no node of NVIDIA's is, or the kernel is not ours."""
    if facts.platform.kind != "linux" or facts.platform.in_container or facts.gpus.simulated:
        return DeviceLinks("absent")
    cards = (gpu for gpu in facts.gpus.devices if gpu.vendor == "nvidia")
    nodes = dict.fromkeys([*(node for gpu in cards for node in gpu.device_files), *_SHARED])
    numbers = {node: number for node in nodes if (number := machine.device_number(node))}
    if not any(node not in _SHARED for node in numbers):
        return DeviceLinks("absent")
    if machine.read(FOLDER).state == "denied":
        return DeviceLinks("denied")
    return DeviceLinks(
        "present",
        {
            node: machine.exists(f"{FOLDER}/{major}:{minor}")
            for node, (major, minor) in numbers.items()
        },
    )
