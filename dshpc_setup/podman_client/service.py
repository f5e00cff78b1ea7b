"""The services of our compose file as options of `podman create`. Pure.

A key that is not carried out is an error, as a container without it would be another one than the file says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dshpc_setup.builtin_client.compose_text import (
    HASH,
    PROJECT,
    SERVICE,
    OneService,
    mapping,
    seconds_of,
    services,
    size_of,
    texts,
    volume_of,
    wrong,
)
from dshpc_setup.engine_client import IDS_LABEL

_ENGINE = "dsHPC's reading of it for Podman"
_LOG_BYTES = 50 << 20


@dataclass(frozen=True)
class Here:
    """What decides how it is carried out: whose Podman it is, and what it may write.

    `uids`, `gids`: the caller's own number, and how many a container may have, where it is rootless.
    `limits`: what a process may have at most of what Podman would raise by itself ("nofile", "nproc").
    """

    rootless: bool
    controllers: frozenset[str] = frozenset()
    uids: tuple[int, int] = (0, 0)
    gids: tuple[int, int] = (0, 0)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """A container: `podman create --name NAME OPTIONS IMAGE`, once each of its volumes is there.

    `resident`: options of the one that stays, and of none that runs once beside it: restarts, ports.
    """

    service: str
    name: str
    image: str
    options: tuple[str, ...]
    resident: tuple[str, ...]
    labels: Mapping[str, str]
    volumes: Mapping[str, Mapping[str, str]]  # by name: their labels

    def create(self) -> list[str]:
        """The words after `podman`."""
        return ["create", "--name", self.name, *self.resident, *self.options, self.image]

    def run(self, name: str, argv: Iterable[str], *, remove: bool) -> list[str]:
        """The same for one beside it, which runs another program to its end."""
        return [
            "run",
            *(["--rm"] if remove else []),
            "--name",
            name,
            *self.options,
            self.image,
            *argv,
        ]


def whose_ids(here: Here) -> tuple[str, ...]:
    """The caller has his own number in the container of a rootless Podman, and all others are of his range.

    Then work files belong to the caller, whoever looks. It is what `--userns keep-id` maps, which also
    starts the container's program as the caller, and adds him to its /etc/passwd.
    """
    if not here.rootless:
        return ()
    return (*_map("--uidmap", *here.uids), *_map("--gidmap", *here.gids))


def _map(option: str, own: int, count: int) -> Iterator[str]:
    """Podman's own root is the caller, and 1 to `count` - 1 are of the range: CONTAINER:PODMAN:SIZE."""
    below = min(own, count - 1)
    parts = [(0, 1, below), (own, 0, 1), (own + 1, own + 1, count - 1 - own)]
    for first, there, size in parts:
        if size > 0:
            yield from (option, f"{first}:{there}:{size}")


def limits(here: Here) -> tuple[str, ...]:
    """Those that Podman sets for root to a million, which an engine in a container may not."""
    return tuple(
        word
        for name, most in sorted(here.limits.items())
        for word in ("--ulimit", f"{name}={most}:{most}")
    )


def wanted(
    text: str, folder: Path, project: str, env: Mapping[str, str], here: Here
) -> tuple[Wanted, ...]:
    """The containers of the file's services; ClientError names what cannot be carried out."""
    found = services(text, env, frozenset((*_KEYS, *_RESIDENT, *_ELSEWHERE)), _ENGINE)
    return tuple(_wanted(_At(each, folder, here), project) for each in found)


def _wanted(at: _At, project: str) -> Wanted:
    found, here = at.service, at.here
    try:
        volumes = dict(_volumes(found))
        options = [
            *("--pull", "never", "--systemd", "false", "--http-proxy=false"),
            *whose_ids(here),
        ]
        for key, spelled in _KEYS.items():
            if key in found.keys:
                options += spelled(found.keys[key], at)
        resident = [
            word
            for key, spelled in _RESIDENT.items()
            if key in found.keys
            for word in spelled(found.keys[key], at)
        ]
        if "ulimits" not in found.keys:
            options += limits(here)
        if "pids_limit" not in found.keys and "pids" in here.controllers:
            options += ["--pids-limit", "-1"]  # Podman's own is 2048, which a few jobs use up
        labels = _labels(found, project, here)
    except ValueError as error:
        raise wrong(f"services.{found.name}", str(error)) from None
    options += _each("--label", (f"{name}={value}" for name, value in labels.items()))
    name = str(found.keys.get("container_name") or f"{project}-{found.name}-1")
    return Wanted(found.name, name, found.image, tuple(options), tuple(resident), labels, volumes)


@dataclass(frozen=True)
class _At:
    """What a key's reader may need beside its value."""

    service: OneService
    folder: Path
    here: Here


def _labels(found: OneService, project: str, here: Here) -> dict[str, str]:
    digest = hashlib.sha256(json.dumps(found.keys, sort_keys=True).encode()).hexdigest()
    ids = {IDS_LABEL: "mapped"} if here.rootless else {}
    return {
        **texts(found.keys, "labels"),
        PROJECT: project,
        SERVICE: found.name,
        HASH: digest,
        **ids,
    }


# -- volumes --------------------------------------------------------------------------------------


def _volumes(found: OneService) -> Iterator[tuple[str, Mapping[str, str]]]:
    for told in _list(found.keys.get("volumes")):
        source = told.partition(":")[0]
        if not source.startswith("/"):
            yield volume_of(found.declared, source)


def _mounts(value: Any, at: _At) -> list[str]:
    mounts = []
    for told in _list(value):
        source, colon, rest = told.partition(":")
        target, _, options = rest.partition(":")
        if (
            not colon
            or not target.startswith("/")
            or not set(filter(None, options.split(","))) <= _MOUNT
        ):
            raise ValueError(f"{told!r} is no volume: name the whole path of a folder")
        if not source.startswith("/"):
            source = volume_of(at.service.declared, source)[0]
        mounts.append(f"{source}:{rest}")
    return _each("--volume", mounts)


_MOUNT = {"ro", "rw", "z", "Z"}


# -- keys -----------------------------------------------------------------------------------------


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _list(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str | int) for each in value):
        raise ValueError(f"{value!r} is no list of texts")
    return [str(each) for each in value]


def _text(option: str) -> Callable[[Any, _At], list[str]]:
    return lambda value, _: [option, str(value)]


def _texts(option: str) -> Callable[[Any, _At], list[str]]:
    return lambda value, _: _each(option, _list(value))


def _limit(option: str, controller: str) -> Callable[[Any, _At], list[str]]:
    """A limit that takes a control group: refused where this Podman has none, and would pass it over."""

    def spelled(value: Any, at: _At) -> list[str]:
        if controller not in at.here.controllers:
            whose = "rootless Podman" if at.here.rootless else "Podman"
            raise ValueError(
                f"{option[2:]} = {value}: {whose} may not write the control group {controller} here "
                "(as a user it takes version 2 and systemd)"
            )
        return [option, str(value)]

    return spelled


def _seconds(value: Any, _: _At) -> list[str]:
    return ["--stop-timeout", str(round(seconds_of(str(value))))]


def _security(value: Any, at: _At) -> list[str]:
    """Podman knows `no-new-privileges` without its `:true`, and reads files from where it is started."""
    options = []
    for told in _list(value):
        name, sign, what = told.replace(":", "=", 1).partition("=")
        if name == "no-new-privileges":
            options += [name] if what in ("", "true") else []
        elif name == "seccomp" and what not in ("unconfined", "") and not what.startswith("/"):
            options.append(f"seccomp={at.folder / what}")
        else:
            options.append(f"{name}{sign}{what}")
    return _each("--security-opt", options)


def _logging(value: Any, _: _At) -> list[str]:
    """Docker's json-file is Podman's k8s-file, which keeps one file and begins it anew."""
    told = mapping(value or {}, "logging")
    driver = str(told.get("driver") or "json-file")
    options = dict(mapping(told.get("options") or {}, "logging.options"))
    words = ["--log-driver", "k8s-file" if driver == "json-file" else driver]
    if driver not in ("json-file", "k8s-file"):
        return [*words, *_each("--log-opt", (f"{name}={each}" for name, each in options.items()))]
    most = size_of(str(options.pop("max-size", _LOG_BYTES))) * int(options.pop("max-file", 1))
    if options:
        raise ValueError(f"logging.options.{min(options)} is not known to Podman")
    return [*words, "--log-opt", f"max-size={most}b"]


def _ulimits(value: Any, _: _At) -> list[str]:
    words = []
    for name, told in mapping(value or {}, "ulimits").items():
        both = told if isinstance(told, dict) else {"soft": told, "hard": told}
        if set(both) != {"soft", "hard"}:
            raise ValueError(f"ulimits.{name} is neither a number nor a soft and a hard one")
        words.append(f"{name}={int(str(both['soft']))}:{int(str(both['hard']))}")
    return _each("--ulimit", words)


def _environment(_: Any, at: _At) -> list[str]:
    told = texts(at.service.keys, "environment")
    return _each("--env", (f"{name}={value}" for name, value in told.items()))


def _deploy(value: Any, _: _At) -> list[str]:
    """The reservation that hands GPUs over by CDI; Podman knows no other driver."""
    at = mapping(value or {}, "deploy")
    for key in ("resources", "reservations"):
        if set(at) != {key}:
            raise ValueError(
                f"deploy: {', '.join(sorted(set(at) - {key}) or [key])} is not carried out"
            )
        at = mapping(at[key] or {}, key)
    names: list[str] = []
    for request in at.get("devices") or ():
        told = mapping(request, "deploy.resources.reservations.devices")
        if told.get("driver") != "cdi":
            raise ValueError(
                f"deploy: Podman hands devices over by CDI, and not by {told.get('driver')!r}"
            )
        names += _list(told.get("device_ids"))
    if set(at) - {"devices"}:
        raise ValueError("deploy: reservations of anything but devices are not carried out")
    return _each("--device", names)


_KEYS: Mapping[str, Callable[[Any, _At], list[str]]] = {
    "hostname": _text("--hostname"),
    "extra_hosts": _texts("--add-host"),
    "stop_grace_period": _seconds,
    "cap_drop": _texts("--cap-drop"),
    "cap_add": _texts("--cap-add"),
    "security_opt": _security,
    "shm_size": lambda value, _: ["--shm-size", f"{size_of(str(value))}b"],
    "pids_limit": _limit("--pids-limit", "pids"),
    "mem_limit": _limit("--memory", "memory"),
    "logging": _logging,
    "ulimits": _ulimits,
    "environment": _environment,
    "devices": _texts("--device"),
    "group_add": _texts("--group-add"),
    "deploy": _deploy,
    "network_mode": _text("--network"),
    "volumes": _mounts,
}
_RESIDENT: Mapping[str, Callable[[Any, _At], list[str]]] = {
    "restart": _text("--restart"),
    "ports": _texts("--publish"),
}
# `build`: no compose builds our image; the others are read where a container is named
_ELSEWHERE = ("build", "image", "container_name", "labels")
