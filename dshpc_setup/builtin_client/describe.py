"""What `inspect` tells, in the form of Docker's API: of that only what somebody asks for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from dshpc_setup.builtin import launch
from dshpc_setup.builtin.wanted import ALIVE
from dshpc_setup.builtin_client.failing import usage
from dshpc_setup.builtin_client.store import Container, Image, Store, Volume

NEVER = "0001-01-01T00:00:00Z"
_PATH = re.compile(r"\{\{\s*(?:(json)\s+)?((?:\.\w+)*\.?)\s*\}\}")


def processor() -> str:
    """As Docker names it."""
    name = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(name, name)


def container(store: Store, found: Container) -> dict[str, Any]:
    status = launch.find(found.run)
    runs = status.state in ALIVE
    words = {"starting": "running", "failed": "created", "gone": "exited"}
    state = words.get(status.state, status.state)
    if not found.started:
        state = "created"
    image = store.find("image", found.image)
    same = image is not None and image.digest == found.wanted.rootfs.digest
    record = status.record
    wanted = found.wanted
    return {
        "Id": found.id,
        "Name": f"/{found.name}",
        "Created": found.created,
        "Image": image.id if same and image is not None else f"sha256:{wanted.rootfs.digest}",
        "RestartCount": 0 if record is None else record.restarts,
        "State": {
            "Status": state,
            "Running": runs,
            "Paused": False,
            "Restarting": status.state == "restarting",
            "OOMKilled": False,
            "Pid": record.init.pid if runs and record is not None and record.init else 0,
            "ExitCode": 137 if status.state == "gone" and found.started else status.code or 0,
            "StartedAt": found.started or NEVER,
        },
        "Config": {
            "Image": found.image,
            "Labels": dict(found.labels),
            "Env": [f"{name}={value}" for name, value in wanted.environment.items()],
            "Hostname": wanted.host_name,
        },
        "HostConfig": {
            "Memory": 0,
            "ShmSize": wanted.shm_mib << 20,
            "Devices": [
                {"PathOnHost": each.source, "PathInContainer": each.target}
                for each in wanted.devices
            ],
            "Privileged": False,
            "Runtime": "builtin",
        },
        "Mounts": [
            {
                "Type": "volume" if each.target in found.volumes else "bind",
                **({"Name": found.volumes[each.target]} if each.target in found.volumes else {}),
                "Source": each.source,
                "Destination": each.target,
                "RW": not each.read_only,
            }
            for each in wanted.mounts
        ],
        "NetworkSettings": {"Ports": {}},
    }


def image(found: Image) -> dict[str, Any]:
    return {
        "Id": found.id,
        "RepoTags": [found.ref] if found.has_name else [],
        "Created": found.created,
        "Size": found.size,
        "Architecture": processor(),
        "Os": "linux",
        "Config": {
            "Labels": dict(found.labels),
            "Env": [f"{name}={value}" for name, value in found.environment.items()],
            "Entrypoint": list(found.entrypoint),
        },
        "RootFS": {"Type": "layers", "Layers": [found.id]},
    }


def volume(found: Volume) -> dict[str, Any]:
    return {"Name": found.name, "Mountpoint": found.path, "Labels": dict(found.labels)}


def shown(value: Any, template: str, dump: Callable[[Any], str]) -> str:
    """A template of `{{.A.B}}` and `{{json .A}}`, filled in; ClientError for another form."""

    def one(found: re.Match[str]) -> str:
        at = value
        for name in filter(None, found[2].split(".")):
            at = at.get(name) if isinstance(at, dict) else None
        return dump(at) if found[1] or not isinstance(at, str) else at

    if "{{" in _PATH.sub("", template):
        raise usage(f"template parsing error: {template}")
    return _PATH.sub(one, template)
