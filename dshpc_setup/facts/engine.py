"""The container engine: how it answers, its compose tools, and the toolkits that hand GPUs to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dshpc_setup.facts.evidence import State
from dshpc_setup.facts.gpus import Vendor

EngineKind = Literal["engine", "desktop", "podman", "snap", "remote", "builtin"]


@dataclass(frozen=True)
class Compose:
    """A compose tool: the v2 plugin (`docker compose`) or the v1 program (`docker-compose`)."""

    version: str
    argv: tuple[str, ...]

    @property
    def major(self) -> int:
        return 1 if self.version.lstrip("v").startswith("1.") else 2


@dataclass(frozen=True)
class Toolkit:
    """What the file system holds of a vendor's container toolkit: paths, None where not there.

    `state` is `absent` where nothing of it is installed; the engine may run elsewhere all the same.
    """

    vendor: Vendor
    state: State
    version: str | None = None
    hook: str | None = None  # nvidia-container-runtime-hook: what --gpus calls
    runtime: str | None = None  # nvidia-container-runtime, amd-container-runtime
    ctk: str | None = None  # nvidia-ctk, amd-ctk
    cdi_hook: str | None = None  # nvidia-cdi-hook
    no_cgroups: bool | None = None  # of its config.toml
    mode: str | None = None  # of its config.toml: auto | legacy | cdi | csv | jit-cdi
    capabilities: tuple[str, ...] = ()  # of its config.toml: what it may hand over; (): all
    detail: str | None = None


@dataclass(frozen=True)
class CdiDevice:
    """A device that a CDI specification names."""

    name: str  # qualified: "nvidia.com/gpu=0"
    nodes: tuple[str, ...] = ()  # device nodes of the host that it alone brings
    group_ids: tuple[int, ...] = ()  # additionalGids


@dataclass(frozen=True)
class CdiSpec:
    """A CDI specification file: what containers are given by name.

    Formats 0.3 to 1.1, YAML or JSON. Paths are those of the host. Devices that another file names with
    more weight are left out; `detail` of a `present` one names a file that clashes with it.
    """

    path: str
    state: State  # present | denied | error: what cannot be read as one
    kind: str | None = None  # "nvidia.com/gpu"
    devices: tuple[CdiDevice, ...] = ()
    nodes: tuple[str, ...] = ()  # device nodes for every device
    missing: tuple[str, ...] = ()  # nodes and mounted files that are not on this machine
    driver_version: str | None = None  # as the names of its libraries say it: "550.163.01"
    detail: str | None = None
    version: str | None = None  # of the format, "0.7.0": an engine that knows older ones refuses it


@dataclass(frozen=True)
class Engine:
    """The Docker engine as it answers; what it alone can tell is None/empty unless present."""

    state: State
    server_version: str | None = None
    api_version: str | None = None
    kind: EngineKind | None = None
    rootless: bool | None = None
    cgroup_driver: str | None = None
    cgroup_version: int | None = None
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    cdi_devices: tuple[str, ...] = ()
    cdi_folders: tuple[str, ...] = ()
    compose: Compose | None = None
    composes: tuple[Compose, ...] = ()  # every one that is installed, the one to use first
    buildx: str | None = None  # version of the buildx plugin, if any
    context: str | None = None  # name of the docker context, "default" where none is chosen
    host: str | None = None  # the endpoint that was asked
    name: str | None = None  # the daemon's own host name
    os_type: str | None = None
    arch: str | None = None
    cpus: int | None = None  # what the daemon's machine has (a VM's on Docker Desktop)
    memory_mib: int | None = None
    security_options: tuple[str, ...] = ()
    root_dir: str | None = None
    disk_mib: int | None = None  # size of the file system that holds root_dir, where it is here
    storage_driver: str | None = None
    log_driver: str | None = None  # of containers that name none: "json-file", "journald"
    engine_id: str | None = None
    detail: str | None = None
    # Of this machine's file system, whatever the engine answers; of a container's not, where the engine
    # runs outside of it:
    toolkits: tuple[Toolkit, ...] = ()  # of each vendor whose GPUs or toolkit are here
    cdi_specs: tuple[
        CdiSpec, ...
    ] = ()  # that count, in its folders, else /etc/cdi and /var/run/cdi
    registered: tuple[str, ...] = ()  # runtimes that daemon.json names, in force or not
    newer: tuple[str, ...] = ()  # files that were installed or changed after the engine started
    log_max_size: str | None = None  # that daemon.json gives each container's log
    product: str | None = None  # of the kind "desktop", where it is another one than Docker Desktop

    @property
    def by_command(self) -> bool:
        """Whether it is Podman by its own command, and not by Docker's client and a socket."""
        return self.host == "podman"

    @property
    def application(self) -> str:
        """What brings the engine, of the kind "desktop"."""
        return self.product or "Docker Desktop"
