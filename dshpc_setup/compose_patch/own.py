"""What a service of the user's own says about GPUs already: the same as ours, or something else. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dshpc_setup.compose_patch.document import Document
from dshpc_setup.compose_patch.nodes import Node, effective, in_force, plain
from dshpc_setup.compose_patch.wanted import RESERVATIONS, Part
from dshpc_setup.errors import DshpcError

Claim = tuple[str, ...]
"""("runtime", "nvidia"), ("request", driver, ids), ("cdi", name), ("node", path), ("env", name, value)."""

CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
_VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES")
_CDI = re.compile(r"[A-Za-z][\w.-]*/[\w.-]+=\S+")
_NVIDIA_NODE = re.compile(r"/dev/nvidia[\w-]*(?:/|$)")
_OTHER_NODE = re.compile(r"/dev/(?:kfd|dxg|dri)(?:/|$)")
_GPU_RUNTIMES = ("nvidia", "nvidia-cdi", "nvidia-experimental", "nvidia-legacy", "amd")


@dataclass(frozen=True, eq=False)
class Said:
    """A claim of the user's, and the lines that make it: those of `first` to those of `last`."""

    claim: Claim
    words: str  # "a reservation of GPUs"
    node: Node  # where it stands
    by_merge: bool


def claims_of(parts: tuple[Part, ...]) -> frozenset[Claim]:
    """What a stanza of ours says, in the same terms."""
    found: set[Claim] = set()
    for part in parts:
        key = part.path[-1]
        if part.path == ("runtime",):
            found.add(("runtime", str(part.value)))
        elif part.path in (("gpus",), RESERVATIONS):
            found |= {claim for item in part.items for claim in _request_claims(item)}
        elif key == "devices":
            found |= {_device_claim(item) for item in part.items}
        elif part.entries:
            found |= {("env", name, value) for name, value in part.entries if name in _VISIBLE}
    return frozenset(found)


def said(document: Document, service: Node, *, raw_nodes: bool) -> Iterator[Said]:
    """Every claim of the service on GPUs; with `raw_nodes` also on nodes of AMD, Intel and WSL.

    Raises DshpcError where a variable stands in the place of one.
    """
    yield from _said_runtime(document, service)
    yield from _said_requests(document, service)
    for item, by_merge in _listed(service, "devices"):
        text = _device_text(item)
        _no_variable(document, item, text, "devices")
        claim = _device_claim(text)
        is_node = _NVIDIA_NODE.match(claim[1]) or (raw_nodes and _OTHER_NODE.match(claim[1]))
        if claim[0] == "cdi" or is_node:
            yield Said(claim, f"the device {text}", item, by_merge)
    for name, value, node, by_merge in environment(service):
        if name in _VISIBLE:
            yield Said(("env", name, value or ""), f"the variable {name}", node, by_merge)


def environment(service: Node) -> Iterator[tuple[str, str | None, Node, bool]]:
    """Name, value (None: taken from the shell), where it stands, and whether a merge key brings it."""
    pair, by_merge = effective(service, "environment")
    if pair is None:
        return
    shared = by_merge or pair.alias
    for inner, merged in in_force(pair.value):
        yield inner.key.text, inner.value.text or None, inner.key, shared or merged
    for item in pair.value.items:
        name, equals, value = item.text.partition("=")
        yield name, value if equals else None, item, shared


def agreeing(parts: tuple[Part, ...]) -> frozenset[Claim]:
    """What may stand beside a stanza of ours: the variable that says what its device request says.

    The engine's NVIDIA driver sets it to that value by itself.
    """
    requests = [
        item for part in parts if part.path in (("gpus",), RESERVATIONS) for item in part.items
    ]
    return frozenset(
        ("env", "NVIDIA_VISIBLE_DEVICES", ",".join(request.get("device_ids", ["all"])))
        for request in requests
        if request["driver"] == "nvidia"
    )


def foreign(document: Document, item: Said, wanted: str) -> DshpcError:
    """The refusal for a claim that is not ours."""
    last = document.line_of(max(item.node.start, _last_offset(document, item.node))) + 1
    first = document.line_of(item.node.start) + 1
    where = f"line {first}" if first == last else f"lines {first} to {last}"
    todo = f"Take out {where}, and what else hands over GPUs there, then run this again."
    if item.by_merge:
        todo = (
            f"Other services may share {where}: give this service a stanza of its own by hand,"
            " or take the GPU out of what they share."
        )
    return document.refusal(
        item.node.start,
        f"the service has a GPU stanza of its own: {item.words}.",
        f"It is not what would be added: {wanted}",
        todo,
        "Or keep yours: then there is nothing to add.",
    )


def _said_runtime(document: Document, service: Node) -> Iterator[Said]:
    pair, by_merge = effective(service, "runtime")
    if pair is not None:
        _no_variable(document, pair.value, pair.value.text, "runtime")
        if pair.value.text in _GPU_RUNTIMES:
            words = f"the runtime {pair.value.text}"
            yield Said(("runtime", pair.value.text), words, pair.key, by_merge)


def _said_requests(document: Document, service: Node) -> Iterator[Said]:
    pair, by_merge = effective(service, "gpus")
    if pair is not None:
        _no_variable(document, pair.value, pair.value.text, "gpus")
        whole = [{"count": pair.value.text}] if pair.value.kind == "scalar" else []
        for item in [*whole, *map(plain, pair.value.items)]:
            for claim in _request_claims(item):
                yield Said(claim, "the key gpus", pair.key, by_merge)
    for node, by_merge in _reservations(service):
        _no_variable(document, node, str(plain(node)), "a reservation")
        value = plain(node)
        if _asks_for_gpu(value):
            for claim in _request_claims(value):
                yield Said(claim, "a reservation of GPUs", node, by_merge)


def _reservations(service: Node) -> Iterator[tuple[Node, bool]]:
    at, by_merge = service, False
    for key in RESERVATIONS:
        pair, here = effective(at, key)
        if pair is None:
            return
        at, by_merge = pair.value, by_merge or here or pair.alias
    for item in at.items:
        yield item, by_merge


def _asks_for_gpu(request: Any) -> bool:
    if not isinstance(request, dict):
        return False
    listed = request.get("capabilities")
    words = str(listed) if isinstance(listed, list) else ""
    drivers = ("nvidia", "amd", "cdi")
    return bool(re.search(r"'(?:gpu|nvidia)'", words)) or request.get("driver") in drivers


def _request_claims(request: Any) -> list[Claim]:
    """One for the request, or one for each CDI name: those are also written as `devices`."""
    if not isinstance(request, Mapping):
        return [("request", "?", str(request))]
    ids = request.get("device_ids") or []
    driver = str(request.get("driver") or "nvidia")
    if driver == "cdi":
        return [("cdi", str(name)) for name in ids] or [("request", "cdi", "")]
    count = str(request.get("count") or ("" if ids else "all"))
    which = ",".join(sorted(map(str, ids))) if ids else "all" if count == "-1" else count
    return [("request", driver, which, "options" if request.get("options") else "")]


def _device_claim(text: str) -> Claim:
    return ("cdi", text) if _CDI.fullmatch(text) else ("node", *_node(text))


def _node(text: str) -> tuple[str, str]:
    """Where it is outside and inside: "/dev/kfd" and "/dev/kfd:/dev/kfd:rwm" are the same."""
    outside, _, inside = text.partition(":")
    return outside, inside.partition(":")[0] or outside


def _device_text(item: Node) -> str:
    """ "host:container", of the long form as well."""
    if item.kind == "scalar":
        return item.text
    value = plain(item)
    if not isinstance(value, dict):
        return ""
    return ":".join(str(value[key]) for key in ("source", "target") if value.get(key))


def _listed(service: Node, key: str) -> Iterator[tuple[Node, bool]]:
    pair, by_merge = effective(service, key)
    if pair is not None:
        for item in pair.value.items:
            yield item, by_merge or pair.alias


def _no_variable(document: Document, node: Node, text: str, what: str) -> None:
    if re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", text):
        raise document.refusal(
            node.start,
            f"a variable stands in {what}: whether that is a GPU already cannot be seen.",
            "",
            "Write the value itself there, then run this again.",
        )


def _last_offset(document: Document, node: Node) -> int:
    """Where the last text of the node begins; of a key, of its value."""
    ends = [token.start for token in document.tokens if node.start <= token.start < node.end]
    return ends[-1] if ends else node.start
