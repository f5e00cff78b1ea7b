"""What is known about a machine: frozen values, made by probes and read by everything after them.

A fact is never just missing: every probe says `present`, `absent`, `denied`, `timeout`, `error` or
`unsupported`, and where it looked. A single value that is not known is None, never 0 or "".
`HostFacts.to_json()` is the contract of `dshpc detect --json` (schema `dshpc.facts/1`).

Beside the facts stand the ways to them: `Evidence` is what was looked at, `Conclusion` what follows
from it and what was not chosen, `Disagreement` where two layers of one machine say different things.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dshpc_setup.facts.engine import CdiDevice, CdiSpec, Compose, Engine, EngineKind, Toolkit
from dshpc_setup.facts.evidence import (
    Because,
    Conclusion,
    Disagreement,
    DisagreementCode,
    Evidence,
    ModuleKind,
    State,
)
from dshpc_setup.facts.gpus import (
    BY_CHOICE,
    ComputeMode,
    Fabric,
    FabricFault,
    FabricState,
    GpuDevice,
    GpuHealth,
    Gpus,
    GpusCause,
    Link,
    MigInstance,
    MigMode,
    RasCount,
    UnusedCode,
    UnusedGpu,
    Vendor,
    Virtualization,
)

__all__ = [
    "BY_CHOICE",
    "SCHEMA",
    "SECTIONS",
    "Because",
    "CdiDevice",
    "CdiSpec",
    "Compose",
    "ComputeMode",
    "Conclusion",
    "Cpu",
    "Disagreement",
    "DisagreementCode",
    "Engine",
    "EngineKind",
    "Evidence",
    "Fabric",
    "FabricFault",
    "FabricState",
    "GpuDevice",
    "GpuHealth",
    "Gpus",
    "GpusCause",
    "HostFacts",
    "Link",
    "Memory",
    "MigInstance",
    "MigMode",
    "ModuleKind",
    "Platform",
    "PlatformKind",
    "RasCount",
    "Section",
    "State",
    "Toolkit",
    "Unanswered",
    "UnusedCode",
    "UnusedGpu",
    "Vendor",
    "Virtualization",
]

PlatformKind = Literal["linux", "wsl2", "wsl1", "macos"]

Section = Literal["platform", "cpu", "memory", "gpus", "docker"]
SECTIONS: tuple[Section, ...] = ("platform", "cpu", "memory", "gpus", "docker")
"""The parts of the facts, by their keys in JSON: what can be asked for by itself."""

SCHEMA = "dshpc.facts/1"


@dataclass(frozen=True)
class Platform:
    """What runs here: the system, its distribution, and what it runs in."""

    kind: PlatformKind
    in_container: bool = False
    container: str | None = None  # docker|podman|lxc|kubernetes|systemd-nspawn|other, if in one
    virtual_machine: str | None = None  # kvm|qemu|vmware|hyperv|xen|virtualbox|...; "none": metal
    os_id: str | None = None  # ID of /etc/os-release: debian, ubuntu, fedora, ...
    os_version: str | None = None
    os_like: tuple[str, ...] = ()
    kernel: str | None = None
    arch: str | None = "x86_64"  # as `uname -m` says it
    selinux: Literal["enforcing", "permissive", "disabled"] | None = None
    state: State = "present"
    tmp_disk_mib: int | None = None  # size of the file system that holds /tmp
    raises_limits: bool | None = None  # whether root's programs may raise a resource limit here


@dataclass(frozen=True)
class Cpu:
    """Logical CPUs as the kernel counts them; `usable` after affinity, cpuset and CPU quota."""

    logical: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    usable: int | None = None
    limited_by: str | None = None  # "cpuset" | "cgroup quota" | "affinity" | "engine"
    state: State = "present"
    socket_cpus: tuple[str, ...] = ()  # logical CPUs of each socket, in order: "0-15,32-47"


@dataclass(frozen=True)
class Memory:
    """MiB: `limit_mib` is the least of the machine's own and every limit on this process.

    `usable_mib` is what Slurm may hand out by default: the limit less a tenth.
    """

    total_mib: int | None = None
    limit_mib: int | None = None
    limited_by: str | None = None  # "cgroup" | "cpuset" | "engine"
    state: State = "present"

    @property
    def usable_mib(self) -> int | None:
        return None if self.limit_mib is None else self.limit_mib - self.limit_mib // 10


@dataclass(frozen=True)
class Unanswered:
    """What could not be asked. `about`: the probe that timed out, or the section of the facts."""

    about: str
    state: State
    detail: str = ""
    section: bool = False

    def __str__(self) -> str:
        """ "nvml: no answer within 9.6 s", "docker: denied, unix:///var/run/docker.sock: ..."."""
        state = self.state if self.section else ""
        return f"{self.about}: {', '.join(filter(None, (state, self.detail)))}"


@dataclass(frozen=True)
class HostFacts:
    """All that was found out about one machine."""

    platform: Platform
    cpu: Cpu
    memory: Memory
    gpus: Gpus
    engine: Engine
    evidence: tuple[Evidence, ...] = field(default=(), compare=False)
    conclusions: tuple[Conclusion, ...] = field(default=(), compare=False)

    def to_json(
        self, only: Collection[Section] = SECTIONS, *, explain: bool = False
    ) -> dict[str, Any]:
        """The `dshpc.facts/1` object, JSON values only: sections not in `only` are null.

        With `explain` the conclusions are in it.
        """
        sections = {
            "platform": self._platform_json,
            "cpu": self._cpu_json,
            "memory": self._memory_json,
            "gpus": self._gpus_json,
            "docker": self._docker_json,
        }
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "simulated": self.gpus.simulated,
            **{key: make() if key in only else None for key, make in sections.items()},
            "evidence": [_less(asdict(item), "module") for item in self.evidence],
        }
        if explain:
            found["conclusions"] = [
                asdict(item, dict_factory=_keyless) for item in self.conclusions
            ]
        return found

    def late(self, probe: str | None = None) -> tuple[Evidence, ...]:
        """Who gave no answer in time: of what they tell nothing is known, absence neither."""
        return tuple(
            item
            for item in self.evidence
            if item.state == "timeout" and probe in (None, item.probe)
        )

    @property
    def forbidden(self) -> bool:
        """Whether the engine answered, and by HTTP 401 or 403: no socket's mode keeps us out."""
        return self.engine.state == "denied" and any(
            item.probe == "engine" and item.code in (401, 403) for item in self.evidence
        )

    @property
    def refusing_plugin(self) -> str | None:
        """The authorization plugin that refuses us, where the engine names one ("authorization denied by
        plugin NAME: why")."""
        found = re.search(r"\bdenied by plugin ([^\s:]{1,80})", self.engine.detail or "")
        return found[1] if self.forbidden and found else None

    @property
    def without_engine(self) -> bool:
        """Whether a proxy answered that no engine is behind it (HTTP 502)."""
        return self.engine.state == "error" and any(
            item.probe == "engine" and item.code == 502 for item in self.evidence
        )

    def unanswered(self, only: Collection[Section] = SECTIONS) -> tuple[Unanswered, ...]:
        """What timed out or could not be asked; () where all was answered."""
        late = self.late()
        told = [
            Unanswered(each.probe, each.state, each.detail or "no answer in time") for each in late
        ]
        for name, fact in (
            ("platform", self.platform),
            ("cpu", self.cpu),
            ("memory", self.memory),
            ("gpus", self.gpus),
            ("docker", self.engine),
        ):
            failed = fact.state in ("denied", "error") or (fact.state == "timeout" and not late)
            if name in only and failed:
                said = (getattr(fact, "host", None), getattr(fact, "detail", None))
                detail = ": ".join(filter(None, said))
                told.append(Unanswered(name, fact.state, detail, section=True))
        if "gpus" in only and not self.gpus.complete and not late:
            detail = self.gpus.detail or "not all of them are known"
            told.append(Unanswered("gpus", self.gpus.state, detail))
        return tuple(dict.fromkeys(told))

    def _platform_json(self) -> dict[str, Any]:
        return asdict(self.platform)

    def _cpu_json(self) -> dict[str, Any]:
        return asdict(self.cpu)

    def _memory_json(self) -> dict[str, Any]:
        return {**asdict(self.memory), "usable_mib": self.memory.usable_mib}

    def _gpus_json(self) -> dict[str, Any]:
        found = asdict(self.gpus, dict_factory=_keyless)
        return {**_less(found, "causes"), "vendor": self.gpus.vendor}

    def _docker_json(self) -> dict[str, Any]:
        found = asdict(self.engine)
        compose = self.engine.compose
        found["compose"] = compose.version.lstrip("v") if compose else None
        return found


def _less(found: dict[str, Any], key: str) -> dict[str, Any]:
    """Without what few have and this one does not."""
    return {name: value for name, value in found.items() if name != key or value}


def _keyless(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return _less(dict(pairs), "key")
