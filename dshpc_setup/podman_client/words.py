"""Command lines of Docker's client as Podman takes them, and Podman's answers as Docker's client words them.

Most are the same. What differs is known from Podman 4.3 and 5.4, seen. Pure.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.podman_client.service import Here, limits, whose_ids

_LOCAL = "localhost/"
_JSON = "{{json .}}"
_SERVER = "{{.Server.Version}}"
_NEVER_RAN = 125  # Podman's own exit code of what it could not do
# What stands before, in Podman's words; what it is, in Docker's
_SAID: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), said)
    for pattern, said in (
        (r"^Error: (?:inspecting object: )?no such container:? (\S+)$", r"Error: No such container: \1"),
        (
            r'^Error: no container with (?:name or ID|ID or name) "([^"]+)" found: no such container$',
            r"Error: No such container: \1",
        ),
        (r"^Error: (?:inspecting object: )?(\S+): image not known$", r"Error: No such image: \1"),
        (r"^Error: (?:inspecting object: )?no such volume:? (\S+)$", r"Error: No such volume: \1"),
        (r'^Error: no volume with name "([^"]+)" found: no such volume$', r"Error: No such volume: \1"),
        (
            r"^Error: unable to find network with name or ID (\S+): network not found$",
            r"Error: network \1 not found",
        ),
        (
            r"^Error: can only create exec sessions on running containers: .*$",
            "Error response from daemon: the container is not running",
        ),
    )
)  # fmt: skip
_STATES = {
    "stopped": "exited",
    "stopping": "running",
    "configured": "created",
    "initialized": "created",
}


def asked(words: Sequence[str], here: Here) -> list[str]:
    """What follows `podman`, for what follows `docker`."""
    verb = words[0] if words else ""
    if verb == "run":  # a container beside the cluster's: with the ids and the limits of that one
        return [
            "run",
            *whose_ids(here),
            *limits(here),
            "--http-proxy=false",
            *words[1:],
        ]
    if verb == "version":
        return [{_SERVER: "{{.Client.Version}}"}.get(word, word) for word in words]
    return list(words)


def answered(words: Sequence[str], stdout: str, stderr: str, code: int | None) -> tuple[str, str]:
    """stdout and stderr, as Docker's client would have said it."""
    if code != 0:
        for pattern, said in _SAID:
            stderr = pattern.sub(said, stderr)
        if words[:1] == ["exec"] and code == _NEVER_RAN:
            stderr = re.sub(
                r"^Error: (?!No such container)",
                "Error response from daemon: ",
                stderr,
                flags=re.MULTILINE,
            )
        return stdout, stderr
    if "inspect" in words[:2]:
        return _inspected(words, stdout), stderr
    if words[:1] == ["images"] or words[:2] == ["image", "ls"]:
        return "".join(f"{line.removeprefix(_LOCAL)}\n" for line in stdout.splitlines()), stderr
    return stdout, stderr


def _inspected(words: Sequence[str], text: str) -> str:
    """JSON of Docker's shape; another template's text as it is."""
    template = next(
        (after for word, after in itertools.pairwise(words) if word == "--format"), None
    )
    if template not in (None, _JSON):
        return text
    try:
        value = foreign.value(text)
    except ValueError:
        return text
    found = [_one(each) for each in (value if isinstance(value, list) else [value])]
    if template is None:
        return json.dumps(found, indent=1) + "\n"
    return "".join(json.dumps(each) + "\n" for each in found)


def _one(value: Any) -> Any:
    """A container, an image or a volume."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("State"), dict):
        return _container(value)
    if "RepoTags" in value:
        tags = [str(tag).removeprefix(_LOCAL) for tag in value["RepoTags"] or ()]
        return {**value, "Id": _id(value.get("Id")), "RepoTags": tags}
    return value


def _container(value: dict[str, Any]) -> dict[str, Any]:
    config, state = dict(value.get("Config") or {}), dict(value["State"])
    host = dict(value.get("HostConfig") or {})
    status = str(state.get("Status"))
    state["Status"] = _STATES.get(status, status)
    state["Running"] = state.get("Running") is True or state["Status"] == "running"
    config["Image"] = str(config.get("Image", "")).removeprefix(_LOCAL)
    # A rootless Podman mounts device nodes, and names them nowhere but in the line it was told
    told = config.get("CreateCommand")
    devices = _devices(told if isinstance(told, list) else [])
    host["Devices"] = [
        {
            "PathOnHost": each.partition(":")[0],
            "PathInContainer": each.split(":")[1 if ":" in each else 0],
        }
        for each in devices
        if each.startswith("/")
    ]
    named = [each for each in devices if not each.startswith("/")]
    host["DeviceRequests"] = [{"Driver": "cdi", "Count": 0, "DeviceIDs": named}] if named else []
    return {
        **value,
        "Image": _id(value.get("Image")),
        "State": state,
        "Config": config,
        "HostConfig": host,
    }


def _devices(told: Sequence[Any]) -> list[str]:
    return [str(after) for word, after in itertools.pairwise(told) if word == "--device"]


def _id(value: object) -> str:
    text = str(value or "")
    return f"sha256:{text}" if re.fullmatch(r"[0-9a-f]{64}", text) else text


def image_changes(
    labels: Mapping[str, str], environment: Mapping[str, str], entrypoint: Sequence[str]
) -> list[str]:
    """What `podman import` is told of an image, which is but a root filesystem: in a Dockerfile's words."""
    told = [f"ENTRYPOINT {json.dumps(list(entrypoint))}"]
    told += [f"ENV {name}={value}" for name, value in environment.items()]
    told += [f"LABEL {name}={value}" for name, value in labels.items()]
    return [word for each in told for word in ("--change", each)]
