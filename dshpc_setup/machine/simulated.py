"""Made-up GPUs over a real machine, so that everything can be tried where there is no GPU.

The same probes run unchanged over it. Whatever is shown is labelled as simulated, and every made-up
UUID begins with facade00.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import State
from dshpc_setup.machine import Binary, CommandResult, Ended, Machine, Read, Reply, Say
from dshpc_setup.machine.profiles import Card, Profile, parse_profile

__all__ = ["Profile", "SimulatedMachine", "device_files", "parse_profile"]

_DRIVER = "580.95.05"
_CUDA = 13000

# Everything that tells of GPUs belongs to the overlay alone: what the base has there is hidden.
_VENDORS = gpu_vendors.all_of_them()
_OWNED = (
    "/sys/bus/pci/devices",
    "/sys/class/drm",
    "/usr/lib/wsl",
    *(path for each in _VENDORS for path in each.hidden),
)
_OWNED_DEVICES = re.compile("|".join(f"/dev/(?:{each.nodes.top})" for each in _VENDORS))
_VENDOR_TOOLS = frozenset(tool for each in _VENDORS for tool in each.tools)


class SimulatedMachine:
    """`base` with the GPUs of `profile` in place of its own.

    `devices_exist`: whether the made-up device nodes are there. True on a host, which has none;
    False in the container, where names of /dev/null stand for those that were handed over, and the
    base's answer is the truth.

    Raises DshpcError (usage) for an unknown profile.
    """

    def __init__(self, base: Machine, profile: str, *, devices_exist: bool) -> None:
        self.base = base
        self.profile = parse_profile(profile)
        self.devices_exist = devices_exist

    @property
    def env(self) -> Mapping[str, str]:
        hidden = ("LD_LIBRARY_PATH", "ROCM_PATH")
        return {key: value for key, value in self.base.env.items() if key not in hidden}

    @property
    def system(self) -> tuple[str, str, str]:
        return self.base.system

    @property
    def uid(self) -> int:
        return self.base.uid

    @property
    def simulated(self) -> str | None:
        return self.profile.text

    @cached_property
    def _files(self) -> Mapping[str, str]:
        return _tree(self.profile)

    @cached_property
    def _links(self) -> Mapping[str, str]:
        return {
            f"/sys/bus/pci/devices/{card.address}/driver": f"/sys/bus/pci/drivers/{card.driver}"
            for card in self.profile.cards
        }

    @cached_property
    def _devices(self) -> frozenset[str]:
        return frozenset(device_files(self.profile))

    def _owner(self, path: str) -> str | None:
        """Who answers for a path: "files", "devices", or None for the base."""
        if any(path == root or path.startswith(f"{root}/") for root in _OWNED):
            return "files"
        if self.devices_exist and _OWNED_DEVICES.match(path):
            return "devices"
        return None

    def read(self, path: str) -> Read:
        if self._owner(path) == "files":
            text = self._files.get(path)
            return Read("absent") if text is None else Read("present", text)
        if path == "/etc/ld.so.cache":
            return Read("absent")  # it would tell of the base's own NVML
        return self.base.read(path)

    def binary(self, path: str) -> Binary:
        return self.base.binary(path) if self._owner(path) is None else Binary("absent")

    def exists(self, path: str) -> bool:
        owner = self._owner(path)
        if owner == "files":
            inside = f"{path}/"
            return path in self._files or any(file.startswith(inside) for file in self._files)
        if owner == "devices":
            inside = f"{path}/"
            return any(path == item or item.startswith(inside) for item in self._devices)
        return self.base.exists(path)

    def listdir(self, path: str) -> tuple[str, ...]:
        if self._owner(path) == "files":
            return _children(path, self._files)
        if not self.devices_exist or not f"{path}/".startswith("/dev/"):
            return self.base.listdir(path)
        own = [name for name in self.base.listdir(path) if self._owner(f"{path}/{name}") is None]
        return tuple(sorted({*own, *_children(path, self._devices)}))

    def readlink(self, path: str) -> str | None:
        if self._owner(path) == "files":
            return self._links.get(path)
        return self.base.readlink(path)

    def is_device(self, path: str) -> bool:
        if self._owner(path) == "devices":
            return path in self._devices
        return self.base.is_device(path)

    def group_of(self, path: str) -> int | None:
        if self._owner(path) == "devices":
            return 0 if path in self._devices else None
        return self.base.group_of(path)

    def device_number(self, path: str) -> tuple[int, int] | None:
        if self._owner(path) == "devices":
            return _number(path) if path in self._devices else None
        return self.base.device_number(path)

    def changed(self, path: str) -> float | None:
        return self.base.changed(path) if self._owner(path) is None else None

    def disk_mib(self, path: str) -> int | None:
        return self.base.disk_mib(path)

    def access(self, path: str) -> State:
        if self._owner(path) == "devices":
            return "present" if path in self._devices else "absent"
        return self.base.access(path)

    def which(self, program: str) -> str | None:
        return None if program in _VENDOR_TOOLS else self.base.which(program)

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline_s: float,
        stdin: bytes | str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> CommandResult:
        return self.base.run(
            argv, deadline_s=deadline_s, stdin=stdin, env=env, cwd=cwd, on_line=on_line
        )

    def start_daemon(self, argv: Sequence[str], *, log: str) -> int:
        return self.base.start_daemon(argv, log=log)

    def apart(
        self,
        questions: Mapping[str, Callable[[Say], None]],
        *,
        deadline_s: float,
        meanwhile: Callable[[], object] | None = None,
        on_item: Callable[[Any], object] | None = None,
    ) -> Mapping[str, Ended]:
        return self.base.apart(
            questions, deadline_s=deadline_s, meanwhile=meanwhile, on_item=on_item
        )

    def nvml(self, deadline_s: float) -> Reply:
        del deadline_s
        cards = self.profile.of("nvidia")
        if not cards:
            return Reply("absent", None, "simulated NVML", "there is no such library", 12)
        value = {
            "driver_version": _DRIVER,
            "nvml_version": _DRIVER,
            "cuda_version": _CUDA,
            "devices": [_nvml_device(card) for card in cards],
        }
        return Reply("present", value, "simulated NVML")

    def nvml_readings(self, deadline_s: float) -> Reply:
        del deadline_s
        return Reply("unsupported", None, "simulated NVML", "made-up GPUs measure nothing")

    def amdsmi(self, deadline_s: float) -> Reply:
        del deadline_s
        return Reply("absent", None, "simulated pyrsmi", "there is no such library")

    def docker(self, deadline_s: float) -> Reply:
        return self.base.docker(deadline_s)

    def clock(self) -> float:
        return self.base.clock()


def device_files(profile: Profile) -> tuple[str, ...]:
    """Every device node that a container must have for the profile's GPUs, each once."""
    found: list[str] = []
    for card in profile.cards:
        if card.vendor == "amd":
            found += ["/dev/kfd", f"/dev/dri/renderD{card.minor}"]
            continue
        found.append(f"/dev/nvidia{card.minor}")
        for number in range(len(card.model.mig)):
            found += [f"/dev/nvidia-caps/nvidia-cap{cap}" for cap in _capabilities(card, number)]
    return tuple(dict.fromkeys(found))


def _number(path: str) -> tuple[int, int] | None:
    """Of a made-up node, where the kernel's own list of numbers fixes it."""
    for start, major in (("/dev/nvidia", 195), ("/dev/dri/renderD", 226)):
        minor = path.removeprefix(start)
        if minor.isdecimal():
            return major, int(minor)
    return None


def _children(path: str, files: Mapping[str, str] | frozenset[str]) -> tuple[str, ...]:
    inside = f"{path.rstrip('/')}/"
    names = {file[len(inside) :].split("/", 1)[0] for file in files if file.startswith(inside)}
    return tuple(sorted(names))


def _tree(profile: Profile) -> dict[str, str]:
    files: dict[str, str] = {}
    for card in profile.cards:
        folder = f"/sys/bus/pci/devices/{card.address}"
        files[f"{folder}/vendor"] = "0x10de" if card.vendor == "nvidia" else "0x1002"
        files[f"{folder}/device"] = f"0x{card.model.device:04x}"
        files[f"{folder}/class"] = "0x030200" if card.vendor == "nvidia" else "0x120000"
        if card.vendor == "amd":
            files.update(_kfd_node(card))
        else:
            files["/sys/module/nvidia/version"] = _DRIVER
            files.update(_capability_entries(card))
    if profile.of("amd"):
        nodes = "/sys/class/kfd/kfd/topology/nodes"
        files[f"{nodes}/0/properties"] = "cpu_cores_count 16\nsimd_count 0\n"
    return files


def _kfd_node(card: Card) -> dict[str, str]:
    folder = f"/sys/class/kfd/kfd/topology/nodes/{card.index + 1}"
    bus = int(card.address.split(":")[1], 16)
    properties = {
        "cpu_cores_count": 0,
        "simd_count": 1216,
        "gfx_target_version": card.model.gfx,
        "vendor_id": 0x1002,
        "device_id": card.model.device,
        "location_id": bus << 8,
        "domain": 0,
        "drm_render_minor": card.minor,
        "unique_id": 0xFACADE00 << 32 | int(_digest(card)[:8], 16),
    }
    lines = [f"{key} {value}" for key, value in properties.items()]
    bank = f"heap_type 1\nsize_in_bytes {(card.model.memory_mib or 0) << 20}\n"
    return {
        f"{folder}/properties": "\n".join(lines) + "\n",
        f"{folder}/mem_banks/0/properties": bank,
    }


def _nvml_device(card: Card) -> dict[str, Any]:
    model = card.model
    device: dict[str, Any] = {
        "index": card.index,
        "name": model.name,
        "uuid": f"GPU-{_uuid(_digest(card))}",
        "pci_bus_id": f"0000{card.address}",
        "minor": card.minor,
        "compute": list(model.compute),
    }
    if model.memory_mib:
        device["memory_bytes"] = model.memory_mib << 20
    if model.mig_capable:
        device["mig_mode"] = 1 if model.mig else 0
    if model.mig:
        device["mig"] = [
            {
                "index": number,
                "name": f"{model.name} MIG {part.profile}",
                "uuid": f"MIG-{_uuid(_digest(card, number))}",
                "memory_bytes": part.memory_mib << 20,
                "gi": part.gi,
                "ci": 0,
            }
            for number, part in enumerate(model.mig)
        ]
    return device


def _capabilities(card: Card, number: int) -> tuple[int, int]:
    """Minor numbers of a GPU instance and its compute instance 0, by the driver's own numbering."""
    access = 3 + card.minor * 135 + card.model.mig[number].gi * 9
    return access, access + 1


def _capability_entries(card: Card) -> dict[str, str]:
    files = {}
    for number, part in enumerate(card.model.mig):
        folder = f"/proc/driver/nvidia/capabilities/gpu{card.minor}/mig/gi{part.gi}"
        access, compute = _capabilities(card, number)
        files[f"{folder}/access"] = f"DeviceFileMinor: {access}\nDeviceFileMode: 292\n"
        files[f"{folder}/ci0/access"] = f"DeviceFileMinor: {compute}\nDeviceFileMode: 292\n"
    return files


def _digest(card: Card, part: int | None = None) -> str:
    # A checksum is random enough for a made-up number, and costs no import of a crypto library.
    text = f"{card.model.key}/{card.index}/{part}"
    return "".join(f"{zlib.crc32(f'{text}/{word}'.encode()):08x}" for word in range(4))


def _uuid(digest: str) -> str:
    return f"facade00-{digest[:4]}-4{digest[4:7]}-a{digest[7:10]}-{digest[10:22]}"
