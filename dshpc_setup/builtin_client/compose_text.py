"""The compose file that we render, as both engines without a compose of their own read it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dshpc_setup.builtin_client.failing import ClientError
from dshpc_setup.documents import yaml_nodes

PROJECT, SERVICE, HASH = (
    "com.docker.compose.project", "com.docker.compose.service", "com.docker.compose.config-hash"
)  # fmt: skip
_VARIABLE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")  # Docker's and Podman's own rule
_OF_VOLUMES = frozenset(("name", "labels"))
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class OneService:
    """A service by its name, and the volumes that the file declares."""

    name: str
    keys: Mapping[str, Any]
    declared: Mapping[str, Any]

    @property
    def image(self) -> str:
        image = self.keys.get("image")
        if not isinstance(image, str):
            raise wrong(f"services.{self.name}.image", "it is missing")
        return image


def services(
    text: str, env: Mapping[str, str], known: frozenset[str], engine: str
) -> tuple[OneService, ...]:
    """In their order; raises ClientError where there is none, or a key that is not `known`.

    `engine`: who does not carry it out, in words.
    """
    try:
        top = mapping(_filled(yaml_nodes.load(text), env), "the file")
    except ValueError as error:
        raise ClientError(f"yaml: {error}", 15) from None
    found = mapping(top.get("services"), "services")
    if not found:
        raise wrong("services", "it has none")
    declared = mapping(top.get("volumes") or {}, "volumes")
    return tuple(_service(name, keys, declared, known, engine) for name, keys in found.items())


def _service(
    name: str, told: Any, declared: Mapping[str, Any], known: frozenset[str], engine: str
) -> OneService:
    keys = mapping(told, name)
    if unknown := sorted(set(keys) - known):
        raise wrong(f"services.{name}.{unknown[0]}", f"{engine} does not carry it out")
    return OneService(name, keys, declared)


def variables(folder: Path) -> dict[str, str]:
    """What .env sets."""
    try:
        lines = (folder / ".env").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.removeprefix("export ").partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs if name[:1] != "#"}


def named(text: str, what: str) -> str:
    """The name, where it can be one of a container or a volume, and is no path; ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a {what}: letters, digits, '_', '.' and '-' make one, and a letter or a "
            "digit is its first"
        )
    return text


def volume_of(declared: Mapping[str, Any], source: str) -> tuple[str, dict[str, str]]:
    """The name that a declared volume has outside of the file, and its labels; ValueError."""
    if source not in declared:
        raise ValueError(f"the volume {source!r} is not declared")
    volume = mapping(declared[source] or {}, source)
    if unknown := sorted(set(volume) - _OF_VOLUMES):
        raise ValueError(f"the volume {source!r}: {unknown[0]} is not carried out by this engine")
    return named(str(volume.get("name") or source), "volume"), texts(volume, "labels")


def size_of(text: str) -> int:
    """Bytes of "1g", "10240k", "64mb"; ValueError."""
    found = re.fullmatch(r"(\d+)([bkmg]?)i?b?", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no size")
    return int(found[1]) * _UNITS[found[2]]


def seconds_of(text: str) -> float:
    """Seconds of "15s", "1m30s"; ValueError."""
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    if parts is None or not any(parts.groups()):
        raise ValueError(f"{text!r} is no duration")
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return hours * 3600 + minutes * 60 + seconds


def mapping(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(place, "a mapping belongs there")
    return {str(key): item for key, item in value.items()}


def texts(section: Mapping[str, Any], key: str) -> dict[str, str]:
    """A mapping of texts, which may be written as a list of NAME=VALUE."""
    value = section.get(key) or {}
    if isinstance(value, list):
        value = dict(str(item).partition("=")[::2] for item in value)
    told = mapping(value, key)
    return {name: "" if item is None else str(item) for name, item in told.items()}


def wrong(place: str, why: str) -> ClientError:
    return ClientError(f"validating docker-compose.yml: {place}: {why}", 15)


def _filled(value: Any, env: Mapping[str, str]) -> Any:
    """With the variables of .env in its texts, and `$$` as one `$`."""
    if isinstance(value, dict):
        return {key: _filled(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, env) for item in value]
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        return env.get(found[2] or found[3]) or found[4] or ""

    return _VARIABLE.sub(one, value)
