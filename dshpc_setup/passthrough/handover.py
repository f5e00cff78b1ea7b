"""How GPUs are handed to a container: the mechanisms, and what each says to Docker and to compose.

Values only. `passthrough` finds out which mechanism works; `stanza` and `compose_patch` write it down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dshpc_setup import gpu_vendors

Mechanism = Literal["none", "simulated", "cdi", "device-request", "runtime", "devices"]
"""`devices` are raw device nodes: kfd and render nodes, /dev/dxg with the driver of Windows."""

MECHANISMS: tuple[Mechanism, ...] = ("cdi", "device-request", "runtime", "devices")
"""What an engine may have, best first."""

USUAL_DRIVER = "nvidia"
"""Of a device request that names none: Docker's own rule, and compose's."""

WORDS: Mapping[Mechanism, str] = {
    "none": "nothing",
    "simulated": "simulated device nodes",
    "cdi": "CDI",
    "device-request": "a device request (--gpus)",
    "runtime": "the nvidia runtime",
    "devices": "device nodes",
}
"""For the screen: "2 GPUs by CDI"."""


@dataclass(frozen=True)
class Handover:
    """One mechanism with all that it needs, for these GPUs; `mechanism` "none" hands over nothing."""

    mechanism: Mechanism
    ids: tuple[str, ...] = ()  # CDI: qualified names; device request: UUIDs or indexes, (): all
    driver: str = USUAL_DRIVER  # of a device request, and the runtime's name: a vendor's
    devices: tuple[str, ...] = ()  # raw nodes, "host:container"
    volumes: tuple[str, ...] = ()  # "host:container:ro"
    group_add: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def vendors(self) -> frozenset[str]:
        """Whose GPUs the mechanism itself brings; those of raw nodes are not told apart."""
        if self.mechanism == "cdi":
            return gpu_vendors.named_by(self.ids)
        by_driver = self.mechanism in ("device-request", "runtime")
        return frozenset((self.driver,)) if by_driver else frozenset()

    @property
    def way(self) -> str:
        """The mechanism in words: "CDI", "the amd runtime"."""
        if self.mechanism == "runtime":
            return f"the {self.driver} runtime"
        return WORDS[self.mechanism]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def docker_flags(self) -> tuple[str, ...]:
        """The options of `docker run` that say the same."""
        flags: list[str] = []
        if self.mechanism == "cdi":
            flags += [flag for name in self.ids for flag in ("--device", name)]
        elif self.mechanism == "device-request":
            # the inner quotes keep several ids one field of the CSV that --gpus takes
            ids = ",".join(self.ids)
            wanted = f'"device={ids}"' if ids else "all"
            flags += [
                "--gpus",
                wanted if self.driver == USUAL_DRIVER else f"{wanted},driver={self.driver}",
            ]
        elif self.mechanism == "runtime":
            flags += ["--runtime", self.driver]
        for option, values in (
            ("--device", self.devices),
            ("--volume", self.volumes),
            ("--group-add", map(str, self.group_add)),
            ("--env", (f"{name}={value}" for name, value in self.environment.items())),
        ):
            flags += [flag for value in values for flag in (option, value)]
        return tuple(flags)


@dataclass(frozen=True)
class DeviceRequest:
    """An entry of `deploy.resources.reservations.devices`, or of `gpus`; without `ids` all devices."""

    driver: str  # a vendor's name, or cdi
    ids: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ("gpu",)


@dataclass(frozen=True)
class GpuStanza:
    """What a service of a compose file says to get its GPUs, by compose's own keys; pure data.

    The first line of `comment` says what it does and how that is known.
    """

    comment: str = ""
    runtime: str | None = None
    gpus: tuple[DeviceRequest, ...] = ()  # the key `gpus`, for a compose of 2.30 or later
    reservations: tuple[DeviceRequest, ...] = ()  # deploy.resources.reservations.devices
    devices: tuple[str, ...] = ()
    group_add: tuple[int, ...] = ()
    volumes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    security_opt: tuple[str, ...] = ()
    cap_add: tuple[str, ...] = ()
