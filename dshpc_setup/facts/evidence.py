"""Where facts were read, what follows from that, and where two layers say different things."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["present", "absent", "denied", "timeout", "error", "unsupported"]
# NVIDIA's own kernel modules, by their kind; "nvidia": of a kind that is not known
ModuleKind = Literal["nvidia", "nvidia-open", "nvidia-proprietary"]


@dataclass(frozen=True)
class Evidence:
    """Where a fact was read, how it went and how long it took."""

    probe: str
    state: State
    source: str
    ms: float
    detail: str | None = None  # of an `error`: the text that could not be read, or its beginning
    code: int | None = None  # the library's own error number, the command's exit code
    module: ModuleKind | None = None  # of a kernel driver that was found


@dataclass(frozen=True)
class Because:
    """A source ("/sys/bus/pci/devices", "NVML") and what it says, in words for the screen."""

    source: str
    says: str
    key: Literal["own-rootless-engine"] | None = None  # where a check has to tell it from others


@dataclass(frozen=True)
class Conclusion:
    """What was concluded, from what, and why nothing else was: the text of `detect --explain`."""

    about: str  # the fact's place: "platform.kind", "gpus 0000:1a:00.0", "docker.compose"
    says: str  # "wsl2", "1 GPU"
    because: tuple[Because, ...] = ()
    instead: tuple[Because, ...] = ()  # what was not chosen, and why not


# A card that the driver did not start, that left the bus, whose module is not loaded, whose kernel has no
# KFD; how many GPUs there are
DisagreementCode = Literal["not-started", "off-the-bus", "not-loaded", "no-kfd", "count"]


@dataclass(frozen=True)
class Disagreement:
    """Two or more layers that contradict each other about one thing."""

    about: str  # a PCI address, a file, "driver version"
    layers: tuple[Because, ...]
    meaning: str  # what it most likely is, for people
    finding: str | None = None  # its id, if there is one
    packages: tuple[str, ...] = ()  # those that a remedy has to remove
    code: DisagreementCode | None = None  # where a check has to tell it from others
