"""What a patched file has to say: worked out with another parser, and without the code under test."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import yaml

from dshpc_setup.errors import DshpcError
from dshpc_setup.passthrough.handover import DeviceRequest, GpuStanza


class _Reader(yaml.SafeLoader):
    """As the safe one, but every scalar stays the text that it is."""


def _scalar(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


for _kind in ("int", "float", "bool", "null", "timestamp"):
    _Reader.add_constructor(f"tag:yaml.org,2002:{_kind}", _scalar)


def said(text: str) -> Any:
    """The data of a YAML text, merge keys resolved."""
    return yaml.load(text.removeprefix("\ufeff"), _Reader)


def with_stanza(data: Any, service: str, stanza: GpuStanza) -> Any:
    """The data and the stanza in it, as compose's documentation writes each key."""
    data = copy.deepcopy(data)
    web = data["services"][service]
    if stanza.runtime:
        web["runtime"] = stanza.runtime
    if stanza.gpus:
        web["gpus"] = [_request(item, short=True) for item in stanza.gpus]
    for key in ("devices", "volumes", "security_opt", "cap_add"):
        _extend(web, key, list(getattr(stanza, key)))
    _extend(web, "group_add", [str(group) for group in stanza.group_add])
    if isinstance(web.get("environment"), list):
        web["environment"] += [f"{name}={value}" for name, value in stanza.environment.items()]
    elif stanza.environment:
        web["environment"] = {**web.get("environment", {}), **stanza.environment}
    if stanza.reservations:
        at = web
        for key in ("deploy", "resources", "reservations"):
            at = at.setdefault(key, {})
        _extend(at, "devices", [_request(item, short=False) for item in stanza.reservations])
    return data


def _extend(at: dict[str, Any], key: str, items: list[Any]) -> None:
    if items:
        at[key] = [*at.get(key, []), *items]


def _request(request: DeviceRequest, *, short: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"driver": request.driver}
    if request.ids:
        found["device_ids"] = list(request.ids)
    else:
        found["count"] = "all"
    return found if short else {**found, "capabilities": list(request.capabilities)}


def added_lines(old: str, new: str) -> list[str]:
    """The lines of `new` that `old` lacks; fails where a line of `old` is gone or changed."""
    rest = iter(new.replace("\r\n", "\n").split("\n"))
    added: list[str] = []
    for line in old.replace("\r\n", "\n").split("\n"):
        for each in rest:
            if each == line:
                break
            added.append(each)
        else:
            raise AssertionError(f"gone or changed: {line!r}")
    return added + list(rest)


def refused(call: Callable[..., Any], *arguments: Any) -> DshpcError:
    """The error of a call that has to be refused."""
    try:
        done = call(*arguments)
    except DshpcError as error:
        return error
    raise AssertionError(f"not refused: {done}")
