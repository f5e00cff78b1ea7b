"""What a service lacks of a GPU stanza, and the blocks of its text that the lines go into. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dshpc_setup.compose_patch import own, service, splice
from dshpc_setup.compose_patch.document import Document
from dshpc_setup.compose_patch.nodes import Node, Pair, plain
from dshpc_setup.compose_patch.nodes import own as own_pair
from dshpc_setup.errors import DshpcError
from dshpc_setup.render.gpu_lines import CAPABILITIES, ENVIRONMENT, Claim, Part, part_lines


@dataclass(frozen=True, eq=False)
class Addition:
    """Entries for one block that is there: where they go, and what the file then says beside."""

    block: Node
    path: tuple[str, ...]
    lines: list[str]
    says: list[tuple[str, Any]]  # key ("" for an item of a list) and value

    @property
    def variables(self) -> bool:
        """Whether it holds nothing but variables of the environment."""
        return self.path == ENVIRONMENT or all(key == ENVIRONMENT[0] for key, _ in self.says)


def unclaimed(parts: tuple[Part, ...], theirs: frozenset[Claim]) -> Iterator[Part]:
    """The parts without what the service asks for in whatever way."""
    for part in parts:
        if part.items:
            items = tuple(
                item for item in part.items if not _claimed(Part(part.path, items=(item,)), theirs)
            )
            if items:
                yield Part(part.path, items=items)
        elif part.value is None or not _claimed(part, theirs):
            yield part


def _claimed(part: Part, theirs: frozenset[Claim]) -> bool:
    claims = own.claims_of((part,))
    return bool(claims) and claims <= theirs


def additions_to(
    document: Document, name: str, mapping: Node, parts: tuple[Part, ...], by_hand: str
) -> Iterator[Addition]:
    """What is missing of the parts, by the blocks that it goes into."""
    layout = splice.layout(document, service.pair_of(document, name).key, mapping)
    fresh = Addition(mapping, (), [], [])
    nested = []
    for whole in parts:
        part = _unset(document, mapping, whole, by_hand) if whole.entries else whole
        if part is None:
            continue
        try:
            block, there = _deepest(document, mapping, part, by_hand)
        except DshpcError:
            if _dispensable(part):
                continue
            raise
        missing = part.path[len(there) :]
        rest = part if missing else _missing(block, part)
        if rest is None:
            continue
        if missing:
            lines = part_lines(part, missing, step=layout.step, dash=layout.dash)
            says = [(missing[0], part.below(missing[1:]))]
        else:
            lines = part_lines(rest, (), listed=block.kind == "sequence")
            says = _entries(rest, block)
        if block is mapping:
            fresh.lines.extend(lines)
            fresh.says.extend(says)
        else:
            nested.append(Addition(block, there, lines, says))
    yield from nested
    if fresh.lines:
        yield fresh


def _deepest(
    document: Document, mapping: Node, part: Part, by_hand: str
) -> tuple[Node, tuple[str, ...]]:
    """The last block on the way to a part that is there, and its path; raises DshpcError.

    Of a part that is one value, and is there already, nothing more is looked at: see `_missing`.
    """
    at = mapping
    for level, key in enumerate(part.path):
        pair = own_pair(at, key)
        if pair is None:
            service.not_merged(document, at, key, by_hand)
            return at, part.path[:level]
        if part.value is not None:
            _same_value(document, pair, part.value, by_hand)
            return at, part.path
        last = level == len(part.path) - 1
        kind = (
            "sequence"
            if last and not (part.entries and pair.value.kind == "mapping")
            else "mapping"
        )
        if not (last and _says_all(pair.value, part)):
            service.in_lines(document, pair, kind, by_hand)
        at = pair.value
    return at, part.path


def _same_value(document: Document, pair: Pair, value: str, by_hand: str) -> None:
    if pair.value.kind == "scalar" and pair.value.text == value:
        return
    raise document.refusal(
        pair.key.start,
        f"`{pair.key.text}` has another value here than `{value}`, which the GPU needs.",
        by_hand,
        "Choose another way of handing over the GPU: --mechanism cdi or device-request.",
        f"Or write {pair.key.text}: {value} there, then run this again.",
    )


def _says_all(container: Node, part: Part) -> bool:
    """Whether nothing is missing there: then it does not matter how it is written."""
    return container.kind != "scalar" and _missing(container, part) is None


def _missing(container: Node, part: Part) -> Part | None:
    """The part without the items that the container holds; of variables see `_unset`."""
    if part.value is not None:
        return None
    if part.entries:
        return part
    values = [plain(item) for item in container.items]
    left = tuple(item for item in part.items if item not in values)
    return Part(part.path, items=left) if left else None


def _unset(document: Document, mapping: Node, part: Part, by_hand: str) -> Part | None:
    """The part without the variables that the service has; raises DshpcError for another value."""
    there = {name: (value, node) for name, value, node, _ in own.environment(mapping)}
    rest = []
    for name, value in part.entries:
        if name not in there:
            rest.append((name, value))
        elif not _serves(name, there[name][0], value):
            raise document.refusal(
                there[name][1].start,
                f"{name} has another value here than {value}, which the GPU needs.",
                by_hand,
                f"Write {name}: {value} there, then run this again.",
            )
    return Part(part.path, entries=tuple(rest)) if rest else None


def _dispensable(part: Part) -> bool:
    """Whether GPUs work without it: NVIDIA's toolkit takes compute and utility where nothing is said."""
    return [name for name, _ in part.entries] == [CAPABILITIES]


def _serves(name: str, there: str | None, wanted_value: str) -> bool:
    """Whether the user's value does for ours: of the driver's capabilities more are welcome."""
    if name == CAPABILITIES and there:
        theirs = {each.strip() for each in there.split(",")}
        return "all" in theirs or theirs >= set(wanted_value.split(","))
    return there == wanted_value


def _entries(part: Part, block: Node) -> list[tuple[str, Any]]:
    if part.entries and block.kind == "mapping":
        return list(part.entries)
    return [("", f"{name}={value}") for name, value in part.entries] + [
        ("", item) for item in part.items
    ]
