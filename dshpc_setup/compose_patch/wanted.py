"""A GPU stanza as compose's own keys and values, and as lines of YAML. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup.passthrough.handover import DeviceRequest, GpuStanza

ENVIRONMENT = ("environment",)
RESERVATIONS = ("deploy", "resources", "reservations", "devices")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
_STEP = "  "


@dataclass(frozen=True)
class Part:
    """What has to stand under one key of the service: a text, entries of a list, or a mapping's."""

    path: tuple[str, ...]  # ("runtime",), ("deploy", "resources", "reservations", "devices")
    value: str | None = None
    items: tuple[Any, ...] = ()  # texts, or mappings of texts and lists of texts
    entries: tuple[tuple[str, str], ...] = ()


def parts(stanza: GpuStanza) -> tuple[Part, ...]:
    """What the stanza wants, in the order in which it is written."""
    environment = tuple((name, _literal(value)) for name, value in stanza.environment.items())
    found = (
        Part(("runtime",), value=_literal(stanza.runtime) if stanza.runtime else None),
        Part(("gpus",), items=tuple(_short(item) for item in stanza.gpus)),
        Part(("devices",), items=_literals(stanza.devices)),
        Part(("group_add",), items=tuple(map(str, stanza.group_add))),
        Part(ENVIRONMENT, entries=environment),
        Part(("volumes",), items=_literals(stanza.volumes)),
        Part(("security_opt",), items=_literals(stanza.security_opt)),
        Part(("cap_add",), items=_literals(stanza.cap_add)),
        Part(RESERVATIONS, items=tuple(_request(item) for item in stanza.reservations)),
    )
    return tuple(part for part in found if part.value or part.items or part.entries)


def _literal(text: str) -> str:
    """As a compose file writes it: a single `$` would name a variable."""
    return text.replace("$", "$$")


def _literals(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(_literal, texts))


def _request(request: DeviceRequest) -> dict[str, Any]:
    which = {"device_ids": list(_literals(request.ids))} if request.ids else {"count": "all"}
    return {"driver": request.driver, **which, "capabilities": list(request.capabilities)}


def _short(request: DeviceRequest) -> dict[str, Any]:
    """An entry of `gpus`, where the capability `gpu` goes without saying."""
    found = _request(request)
    if request.capabilities == ("gpu",):
        del found["capabilities"]
    return found


def lines(stanza: GpuStanza) -> list[str]:
    """The whole stanza as lines to write into a service by hand."""
    found: list[str] = []
    for part in parts(stanza):
        found += part_lines(part, part.path)
    return found


def part_lines(
    part: Part, missing: Sequence[str], *, step: int = 2, dash: int = 2, listed: bool = False
) -> list[str]:
    """The lines of a part below what is there already; `missing` are the last keys of its path.

    `step` is how far a mapping's keys are indented, `dash` how far a list is below its key. Where
    nothing is missing, variables go into a mapping, or with `listed` into a list.
    """
    if part.value is not None:
        return [f"{missing[-1]}: {quoted(part.value)}"]
    found: list[str] = []
    for level, key in enumerate(missing):
        found.append(f"{' ' * (step * level)}{key}:")
    indent = " " * (step * (len(missing) - 1) + (dash if part.items else step)) if missing else ""
    return found + [indent + line for line in _content(part, listed)]


def _content(part: Part, listed: bool) -> list[str]:
    if listed:
        items = [f"{name}={value}" for name, value in part.entries]
        return [line for item in (*items, *part.items) for line in _item(item)]
    if part.entries:
        return [f"{quoted(name)}: {quoted(value, always=True)}" for name, value in part.entries]
    return [line for item in part.items for line in _item(item)]


def _item(item: Any) -> list[str]:
    if not isinstance(item, Mapping):
        return [f"- {quoted(item, always=True)}"]
    pairs = [f"{key}: {_flow(value)}" for key, value in item.items()]
    return [f"- {pairs[0]}", *(_STEP + pair for pair in pairs[1:])]


def _flow(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(quoted(each) for each in value)}]"
    return quoted(value)


def quoted(text: str, *, always: bool = False) -> str:
    """A scalar that YAML reads as this text: in double quotes where need be."""
    if not always and _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    escaped = "".join(_escaped(char) for char in text)
    return f'"{escaped}"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
