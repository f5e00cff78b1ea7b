"""What `podman info` says of itself, and as Docker's API would say it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup.documents import foreign

LEAST_IDS = 65536
_SELINUX, _SECCOMP, _APPARMOR = "selinux", "seccomp", "apparmor"


@dataclass(frozen=True)
class About:
    """`controllers`: the control groups that it may write; `uids`, `gids`: how many a container may have."""

    version: str
    rootless: bool
    remote: bool
    controllers: frozenset[str]
    cgroup_version: str  # "1" or "2"
    uids: int
    gids: int
    raw: Mapping[str, Any]


def parse(text: str) -> About:
    """Raises ValueError for what is no answer of Podman's."""
    value = foreign.value(text)
    host, version = _object(value, "host"), _object(value, "version")
    if not host or not isinstance(version.get("Version"), str):
        raise ValueError("it names neither a host nor a version")
    maps = _object(host, "idMappings")
    controllers = host.get("cgroupControllers")
    return About(
        version=version["Version"],
        rootless=_object(host, "security").get("rootless") is True,
        remote=host.get("serviceIsRemote") is True,
        controllers=frozenset(map(str, controllers if isinstance(controllers, list) else ())),
        cgroup_version=str(host.get("cgroupVersion", "")).lstrip("v"),
        uids=_ids(maps.get("uidmap")),
        gids=_ids(maps.get("gidmap")),
        raw=value,
    )


def as_docker_says(about: About, release: str, client: str) -> dict[str, Any]:
    """The answers of an engine's API to `version` and `info`; `client`: what is asked, for the facts."""
    host, store = _object(about.raw, "host"), _object(about.raw, "store")
    security = _object(host, "security")
    runtime = str(_object(host, "ociRuntime").get("name", ""))
    options = [
        f"name={name}"
        for name in (_SECCOMP, _SELINUX, _APPARMOR)
        if security.get(f"{name}Enabled") is True
    ]
    # Docker's word for an engine that may write none, as a rootless one on version 1
    manager = str(host.get("cgroupManager", "")) if "pids" in about.controllers else "none"
    # Podman's own name for it is another one, and it takes both
    log = {"k8s-file": "json-file"}.get(str(host.get("logDriver", "")), host.get("logDriver"))
    return {
        "host": client,
        "context": "default",
        "version": {
            "Version": about.version,
            "Components": [{"Name": "Podman Engine", "Version": about.version}],
            "Os": "linux",
        },
        "info": {
            "ServerVersion": about.version,
            "KernelVersion": release,
            "OperatingSystem": "podman",
            "OSType": "linux",
            "Architecture": str(host.get("arch", "")),
            "Name": str(host.get("hostname", "")),
            "NCPU": host.get("cpus"),
            "MemTotal": host.get("memTotal"),
            "CgroupDriver": manager,
            "CgroupVersion": about.cgroup_version,
            "SecurityOptions": [*options, *(["name=rootless"] if about.rootless else [])],
            "Driver": str(store.get("graphDriverName", "")),
            "DockerRootDir": str(store.get("graphRoot", "")),
            "LoggingDriver": log,
            "Runtimes": {runtime: {}} if runtime else {},
            "DefaultRuntime": runtime,
        },
    }


def _ids(ranges: object) -> int:
    """Of a map that is left out, as root's is: all."""
    if not isinstance(ranges, list):
        return 1 << 32
    sizes = (each.get("size") for each in ranges if isinstance(each, dict))
    return sum(size for size in sizes if isinstance(size, int))


def _object(value: object, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
