"""`docker compose` for the file that we render: its services, its volumes, and nothing that is passed over.

A key that this engine does not carry out is an error, as a container without it would be another one than the
file says.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dshpc_setup.builtin import launch
from dshpc_setup.builtin.wanted import ALIVE, RIGHTS
from dshpc_setup.builtin_client import containers
from dshpc_setup.builtin_client.compose_text import (
    HASH,
    PROJECT,
    SERVICE,
    OneService,
    mapping,
    named,
    seconds_of,
    services,
    size_of,
    texts,
    variables,
    volume_of,
    wrong,
)
from dshpc_setup.builtin_client.door import COMPOSE
from dshpc_setup.builtin_client.failing import ClientError, refused
from dshpc_setup.builtin_client.plan import Planned, PlannedMount, device_of, mount_of
from dshpc_setup.builtin_client.store import Container, Store
from dshpc_setup.builtin_client.words import Options, put
from dshpc_setup.machine import Machine

FOLDER = ".dshpc/engine"
# Keys that change nothing here: the image is never built by compose; the network is the machine's own; who
# is root in a user namespace, and whose system calls are those of any program of this user, has no other
# rights to lose.
_WITHOUT_EFFECT = frozenset(("build", "security_opt", "cap_drop", "extra_hosts", "network_mode"))
_CARRIED_OUT = frozenset(
    ("image", "container_name", "hostname", "restart", "stop_grace_period", "cap_add", "shm_size", "logging",
     "environment", "labels", "devices", "volumes")
)  # fmt: skip


def main(machine: Machine, store: Store, argv: list[str]) -> int:
    """`compose [OPTIONS] version|config|up|down|run ...`; ClientError and DshpcError."""
    options = Options(
        argv,
        {"--ansi": "value", "--project-directory": "value", "-f": "value", "-p": "value"},
    )
    verb, *rest = options.words or ["version"]
    if verb == "version":
        put(COMPOSE)
        return 0
    folder = Path(options.value("--project-directory") or ".").resolve()
    file = options.value("-f") or str(folder / "docker-compose.yml")
    text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    project = options.value("-p") or folder.name
    if verb == "down":
        return _down(machine, store, project)
    planned = planned_of(text, folder, project, variables(folder))
    if verb == "config":
        return 0
    if verb == "up":
        keeps = Options(
            rest, {"-d": "nothing", "--no-build": "nothing", "--no-recreate": "nothing"}
        )
        for each in planned:
            _up(machine, store, each, recreate=not keeps.has("--no-recreate"))
        return 0
    if verb == "run":
        return _run(machine, store, planned[0], rest)
    raise ClientError(f'unknown docker command: "compose {verb}"', 16)


def planned_of(
    text: str, folder: Path, project: str, env: Mapping[str, str]
) -> tuple[Planned, ...]:
    """The containers of the file's services. Pure; ClientError names what this engine cannot do."""
    found = services(text, env, _WITHOUT_EFFECT | _CARRIED_OUT, "the built-in engine")
    return tuple(_planned(each, folder, project) for each in found)


def _planned(found: OneService, folder: Path, project: str) -> Planned:
    name, service, declared, image = found.name, found.keys, found.declared, found.image
    digest = hashlib.sha256(json.dumps(service, sort_keys=True).encode()).hexdigest()
    labels = {**texts(service, "labels"), PROJECT: project, SERVICE: name, HASH: digest}
    logging = mapping(
        mapping(service.get("logging") or {}, "logging").get("options") or {}, "logging"
    )
    try:
        added = [str(each) for each in service.get("cap_add") or RIGHTS]
        return Planned(
            named(str(service.get("container_name") or f"{project}-{name}-1"), "container"),
            image,
            folder / FOLDER,
            host_name=str(service.get("hostname") or ""),
            environment=texts(service, "environment"),
            labels=labels,
            mounts=tuple(_mount(each, declared, folder) for each in service.get("volumes") or ()),
            devices=tuple(device_of(str(each)) for each in service.get("devices") or ()),
            capabilities=tuple(added),
            shm_mib=max(1, size_of(str(service.get("shm_size") or "64m")) >> 20),
            log_bytes=size_of(str(logging.get("max-size") or "4m")),
            grace_s=seconds_of(str(service.get("stop_grace_period") or "10s")),
            restart=service.get("restart") in ("always", "unless-stopped"),
        )
    except ValueError as error:
        raise wrong(f"services.{name}", str(error)) from None


def _mount(told: Any, declared: Mapping[str, Any], folder: Path) -> PlannedMount:
    mount = mount_of(str(told))
    if mount.volume is None:
        return mount
    if mount.source.startswith("."):
        raise ValueError(f"{told!r}: name the whole path, below {folder}")
    volume, labels = volume_of(declared, mount.source)
    return PlannedMount(volume, mount.target, mount.read_only, labels)


def _of(store: Store, project: str) -> list[Container]:
    return [each for each in store.all("container") if each.labels.get(PROJECT) == project]


def _up(machine: Machine, store: Store, planned: Planned, *, recreate: bool) -> None:
    with store.changing():
        found: Container | None = store.find("container", planned.name)
        if found is not None and found.labels.get(PROJECT) != planned.labels[PROJECT]:
            raise ClientError(
                f'Error response from daemon: Conflict. The container name "/{planned.name}" is already in '
                f'use by container "{found.id}".'
            )
        _refuse_others(store, planned)
        if found is not None and recreate and _is_another(store, found, planned):
            put(f"Recreating {planned.name}")
            containers.stop(found)
            containers.remove(machine, store, found, force=True)
            found = None
        if found is None:
            put(f"Creating {planned.name}")
            found = containers.make(machine, store, planned)
        if launch.find(found.run).state in ALIVE:
            put(f"{planned.name} is up-to-date")
        else:
            put(f"Starting {planned.name}")
            containers.start(machine, store, found)


def _refuse_others(store: Store, planned: Planned) -> None:
    """Two controllers that write one queue damage it: a volume that another project's container has."""
    wanted = {each.source for each in planned.mounts if each.volume is not None}
    for each in store.all("container"):
        if each.labels.get(PROJECT) == planned.labels[PROJECT]:
            continue
        for name in sorted(wanted.intersection(each.volumes.values())):
            raise refused(
                f"the volume {name} is in use by the container {each.name} of another cluster"
            )


def _is_another(store: Store, container: Container, planned: Planned) -> bool:
    """Whether the file, or the image behind its name, is another one than the container was made from."""
    image = store.find("image", planned.image)
    other = image is not None and image.digest != container.wanted.rootfs.digest
    return other or container.labels.get(HASH) != planned.labels[HASH]


def _down(machine: Machine, store: Store, project: str) -> int:
    with store.changing():
        for each in _of(store, project):
            put(f"Stopping {each.name}")
            containers.stop(each)
            containers.remove(machine, store, each, force=True)
    return 0


def _run(machine: Machine, store: Store, planned: Planned, rest: list[str]) -> int:
    options = Options(
        rest,
        {"--rm": "nothing", "--no-deps": "nothing", "-T": "nothing", "--name": "value"},
    )
    _, *argv = options.words
    name = options.value("--name") or f"{planned.name}-run"
    _refuse_others(store, planned)
    one = replace(planned, name=name, argv=tuple(argv), restart=False)
    return containers.run_to_end(machine, store, one, None, remove_after=options.has("--rm"))
