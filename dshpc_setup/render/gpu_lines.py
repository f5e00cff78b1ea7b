"""The GPU lines of a service in a compose file, written and read back. Pure.

`parts` says what a stanza wants under each key, `lines` and `cluster_lines` write it down, `read` says what
a service asks for, by whatever keys and whoever wrote it. What is written is read back as it was wanted:
tests/unit/render/test_gpu_lines.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dshpc_setup import gpu_vendors
from dshpc_setup.passthrough.handover import USUAL_DRIVER, DeviceRequest, GpuStanza

ENVIRONMENT = ("environment",)
RESERVATIONS = ("deploy", "resources", "reservations", "devices")

_VENDORS = gpu_vendors.all_of_them()
CAPABILITIES = next(name for each in _VENDORS for name in each.capabilities)
VISIBLE = tuple(each.runtime_variable for each in gpu_vendors.with_runtime())
RUNTIMES = tuple(name for each in _VENDORS for name in each.runtimes)


def _nodes(*, alone: bool) -> re.Pattern[str]:
    """Of the vendors whose nodes do alone, or of the others."""
    names = "|".join(each.nodes.top for each in _VENDORS if each.nodes_suffice is alone)
    return re.compile(rf"/dev/(?:{names})(?:/|$)")


NODE = _nodes(alone=False)
RAW_NODE = _nodes(alone=True)  # also there for other ends
_DRIVERS = (*(each.name for each in gpu_vendors.with_runtime()), "cdi")
_ASKS_FOR_GPU = re.compile(r"'(?:gpu|nvidia)'")

_CDI = re.compile(r"[A-Za-z][\w.-]*/[\w.-]+=\S+")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
# What JSON leaves as it is, and YAML refuses or takes for the end of a line
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
# The order of the cluster's own file; the variables, volumes and rights stand among those of the cluster
_CLUSTER = (("devices",), ("group_add",), ("runtime",), ("gpus",), RESERVATIONS)
_CLUSTER_REQUEST = ("driver", "capabilities", "device_ids", "count")


@dataclass(frozen=True)
class Part:
    """What has to stand under one key of the service: a text, entries of a list, or a mapping's."""

    path: tuple[str, ...]  # ("runtime",), ("deploy", "resources", "reservations", "devices")
    value: str | None = None
    items: tuple[Any, ...] = ()  # texts, or mappings of texts and lists of texts
    entries: tuple[tuple[str, str], ...] = ()

    def below(self, keys: Sequence[str]) -> Any:
        """As it is read, with so many of its path's last keys around it."""
        value: Any = (
            self.value if self.value is not None else list(self.items) or dict(self.entries)
        )
        for key in reversed(keys):
            value = {key: value}
        return value


def parts(stanza: GpuStanza) -> tuple[Part, ...]:
    """What the stanza wants, in the order in which it is written into a file of the user's."""
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


# Writing


def lines(stanza: GpuStanza) -> list[str]:
    """The whole stanza as lines to write into a service by hand."""
    return [line for part in parts(stanza) for line in part_lines(part, part.path)]


def cluster_lines(stanza: GpuStanza) -> list[str]:
    """The keys of the stanza that the cluster's own file has for nothing else; every text in quotes."""
    wanted = {part.path: part for part in parts(stanza)}
    return [
        line
        for path in _CLUSTER
        if path in wanted
        for line in part_lines(wanted[path], path, quotes=True)
    ]


def part_lines(
    part: Part,
    missing: Sequence[str],
    *,
    step: int = 2,
    dash: int = 2,
    listed: bool = False,
    quotes: bool = False,
) -> list[str]:
    """The lines of a part below what is there already; `missing` are the last keys of its path.

    `step` is how far a mapping's keys are indented, `dash` how far a list is below its key. Where
    nothing is missing, variables go into a mapping, or with `listed` into a list.
    """
    if part.value is not None:
        return [f"{missing[-1]}: {quoted(part.value, always=quotes)}"]
    found: list[str] = []
    for level, key in enumerate(missing):
        found.append(f"{' ' * (step * level)}{key}:")
    indent = " " * (step * (len(missing) - 1) + (dash if part.items else step)) if missing else ""
    return found + [indent + line for line in _content(part, listed, quotes)]


def _content(part: Part, listed: bool, quotes: bool) -> list[str]:
    if part.entries and not listed:
        return [f"{quoted(name)}: {quoted(value, always=True)}" for name, value in part.entries]
    items = (*(f"{name}={value}" for name, value in part.entries), *part.items)
    return [line for item in items for line in _item(item, quotes)]


def _item(item: Any, quotes: bool) -> list[str]:
    if not isinstance(item, Mapping):
        return [f"- {quoted(item, always=True)}"]
    keys = sorted(item, key=_CLUSTER_REQUEST.index) if quotes else item
    pairs = [f"{key}: {_flow(item[key], quotes and key != 'count')}" for key in keys]
    return [f"- {pairs[0]}", *(f"  {pair}" for pair in pairs[1:])]


def _flow(value: Any, quotes: bool) -> str:
    if isinstance(value, list):
        return f"[{', '.join(quoted(each, always=quotes) for each in value)}]"
    return quoted(value, always=quotes)


def quoted(text: str, *, always: bool = False) -> str:
    """A scalar that YAML reads as this text: in double quotes where need be."""
    bare = not always and _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if bare else in_line(text)


def in_line(value: object) -> str:
    """A value as YAML in one line, its texts in double quotes (JSON is YAML)."""
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# Reading


@dataclass(frozen=True)
class Claim:
    """One thing that a service asks for; two are equal where the engine does the same for both.

    A request for CDI devices is a claim for each name, as it is where they stand among the `devices`.
    """

    kind: Literal["runtime", "request", "cdi", "node", "group", "variable"]
    name: str  # the runtime's, driver's, device's, variable's; of a node the path outside
    value: tuple[str, ...] = ()  # ids or a count; the path inside; of a variable, where it has one
    options: bool = False  # of a request: it has some of its own
    place: tuple[str | int, ...] = field(default=(), compare=False)  # from the service on
    written: str = field(default="", compare=False)  # of a device, as it stands there


def read(service: Mapping[str, Any]) -> Iterator[Claim]:
    """All that a service says about devices, GPUs or not; numbers are texts.

    Of the reservations those alone that are of a GPU.
    """
    if isinstance(runtime := service.get("runtime"), str):
        yield Claim("runtime", runtime, place=("runtime",))
    gpus = service.get("gpus")
    if isinstance(gpus, str):
        yield from _requested({"count": gpus}, ("gpus",))
    for item in _list(gpus):
        yield from _requested(item, ("gpus",))
    reserved: Any = service
    for key in RESERVATIONS:
        reserved = _mapping(reserved).get(key)
    for number, item in enumerate(_list(reserved)):
        if _asks_for_gpu(item):
            yield from _requested(item, (*RESERVATIONS, number))
    for number, item in enumerate(_list(service.get("devices"))):
        yield from _device(item, ("devices", number))
    for number, item in enumerate(_list(service.get("group_add"))):
        if isinstance(item, str):
            yield Claim("group", item, place=("group_add", number))
    yield from _variables(service.get("environment"))


def _asks_for_gpu(request: Any) -> bool:
    listed = _mapping(request).get("capabilities")
    words = str(listed) if isinstance(listed, list) else ""
    return bool(_ASKS_FOR_GPU.search(words)) or _mapping(request).get("driver") in _DRIVERS


def _requested(request: Any, place: tuple[str | int, ...]) -> Iterator[Claim]:
    if not isinstance(request, Mapping):
        yield Claim("request", "?", (str(request),), place=place)
        return
    ids = tuple(map(str, _list(request.get("device_ids"))))
    driver = str(request.get("driver") or USUAL_DRIVER)
    if driver == "cdi" and ids:
        yield from (Claim("cdi", name, place=place) for name in ids)
        return
    count = str(request.get("count") or "all")
    which = ids or ("all" if count == "-1" else count,)
    yield Claim("request", driver, which, bool(request.get("options")), place)


def _device(item: Any, place: tuple[str | int, ...]) -> Iterator[Claim]:
    """ "/dev/kfd" and "/dev/kfd:/dev/kfd:rwm" are the same, and so is the long form."""
    ends = (_mapping(item).get(key) for key in ("source", "target"))
    text = item if isinstance(item, str) else ":".join(str(end) for end in ends if end)
    if _CDI.fullmatch(text):
        yield Claim("cdi", text, place=place, written=text)
    elif text:
        outside, _, inside = text.partition(":")
        value = (inside.partition(":")[0] or outside,)
        yield Claim("node", outside, value, place=place, written=text)


def _variables(environment: Any) -> Iterator[Claim]:
    for name, value in _mapping(environment).items():
        said = (value,) if isinstance(value, str) else ()
        yield Claim("variable", name, said, place=(*ENVIRONMENT, name))
    for number, item in enumerate(_list(environment)):
        if isinstance(item, str):
            name, equals, value = item.partition("=")
            said = (value,) if equals else ()
            yield Claim("variable", name, said, place=(*ENVIRONMENT, number))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
