"""What a container is to be, as a command line or a compose file says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dshpc_setup.builtin.wanted import RIGHTS, Device


@dataclass(frozen=True)
class PlannedMount:
    """A folder of the machine, or a volume by name: `volume` are its labels then."""

    source: str
    target: str
    read_only: bool = False
    volume: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Planned:
    """`folder`: where the container and its volumes lie. `argv` follows the image's entrypoint."""

    name: str
    image: str
    folder: Path
    argv: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    host_name: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[PlannedMount, ...] = ()
    devices: tuple[Device, ...] = ()
    capabilities: tuple[str, ...] = RIGHTS
    shm_mib: int = 64
    log_bytes: int = 4 << 20
    grace_s: float = 10.0
    restart: bool = False


def mount_of(text: str, labels: Mapping[str, str] | None = None) -> PlannedMount:
    """`SOURCE:TARGET[:ro]` as Docker reads it: a source that begins with no slash is a volume's name."""
    parts = text.split(":")
    options = parts[2].split(",") if len(parts) > 2 else []
    if (
        len(parts) not in (2, 3)
        or not parts[1].startswith("/")
        or not set(options) <= {"ro", "rw", "z", "Z"}
    ):
        raise ValueError(f"{text!r} is no volume")
    volume = None if parts[0].startswith("/") else dict(labels or {})
    return PlannedMount(parts[0], parts[1], "ro" in options, volume)


def device_of(text: str) -> Device:
    source, _, target = text.partition(":")
    target = target.partition(":")[0] or source
    if not source.startswith("/dev/") or not target.startswith("/dev/"):
        raise ValueError(f"{text!r} is no device node")
    return Device(source, target)
