"""The nodes of a compose file, and ways through them: what is written, and what is in force. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["mapping", "sequence", "scalar"]
MERGE = "tag:yaml.org,2002:merge"
_NULL = "tag:yaml.org,2002:null"


@dataclass(eq=False)
class Node:
    """A node of the document; `start` and `end` are offsets in the text, `end` behind what follows it."""

    kind: Kind
    tag: str
    text: str  # of a scalar
    flow: bool  # in braces or brackets
    start: int
    end: int
    anchor: str | None
    pairs: list[Pair] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    uses: int = 1  # 2 and more: aliases stand for it elsewhere
    weight: int = 0  # nodes in it, what aliases stand for counted each time; 0: not yet read
    height: int = 1  # levels in it

    @property
    def parts(self) -> list[Node]:
        """Keys and values, or items."""
        return [part for pair in self.pairs for part in (pair.key, pair.value)] + self.items

    @property
    def empty(self) -> bool:
        """Whether nothing stands there, or `~`, or `null`."""
        return self.kind == "scalar" and (self.tag == _NULL or not self.text)

    @property
    def tagged(self) -> bool:
        """Whether it carries a tag of its own (`!reset`, `!override`)."""
        return not self.tag.startswith("tag:yaml.org,2002:")


@dataclass(frozen=True, eq=False)
class Pair:
    """A key and its value; `alias` where the value is written as `*name`."""

    key: Node
    value: Node
    alias: bool


@dataclass(frozen=True)
class Token:
    """A piece of text that is no comment, blank or line break."""

    kind: str  # the parser's name of it: "Scalar", "BlockEntry", "Alias", ...
    start: int
    end: int
    block: bool = False  # a scalar of lines: | or >


def walked(root: Node) -> Iterator[Node]:
    """Every node once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        waiting += node.parts


def own(mapping: Node, key: str) -> Pair | None:
    """The pair of that key, written in the mapping itself."""
    for pair in mapping.pairs:
        if pair.key.kind == "scalar" and pair.key.tag != MERGE and pair.key.text == key:
            return pair
    return None


def in_force(mapping: Node) -> Iterator[tuple[Pair, bool]]:
    """Every pair that counts, and whether a merge key (`<<`) brings it.

    Its own pairs come first and hide those of a merge key; of two that bring the same the first wins.
    """
    names: set[str] = set()
    met: set[int] = set()
    waiting = [mapping]
    while waiting:
        at = waiting.pop()
        if id(at) in met:
            continue
        met.add(id(at))
        sources: list[Node] = []
        for pair in at.pairs:
            if pair.key.tag == MERGE:
                sources += pair.value.items if pair.value.kind == "sequence" else [pair.value]
            elif pair.key.kind == "scalar" and pair.key.text not in names:
                names.add(pair.key.text)
                yield pair, at is not mapping
        waiting += reversed(sources)


def effective(mapping: Node, key: str) -> tuple[Pair | None, bool]:
    """The pair of that key that counts, and whether a merge key brings it."""
    found = (each for each in in_force(mapping) if each[0].key.text == key)
    return next(found, (None, False))


@dataclass(frozen=True, eq=False)
class Reached:
    """A part of a mapping: its key, or the item itself of a list, and what stands there."""

    place: Node
    value: Node
    shared: bool  # others may have it as well: a merge key or an alias on the way brings it


def reached(mapping: Node, path: tuple[str | int, ...]) -> Reached | None:
    """The part that counts at that path; None where there is none."""
    place = value = mapping
    shared = alias = False
    for step in path:
        shared = shared or alias
        if isinstance(step, int):
            place = value = value.items[step]
            alias = False
            continue
        pair, merged = effective(value, step)
        if pair is None:
            return None
        place, value, alias = pair.key, pair.value, pair.alias
        shared = shared or merged
    return Reached(place, value, shared)


def meant(node: Node) -> Any:
    """Lists, dicts, texts, and None where nothing stands, with what merge keys bring."""
    if node.kind == "scalar":
        return None if node.empty else node.text
    if node.kind == "sequence":
        return [meant(item) for item in node.items]
    return {pair.key.text: meant(pair.value) for pair, _ in in_force(node)}


def plain(node: Node) -> Any:
    """Lists, dicts and the texts of scalars; merge keys stay keys."""
    if node.kind == "scalar":
        return node.text
    if node.kind == "sequence":
        return [plain(item) for item in node.items]
    return {pair.key.text: plain(pair.value) for pair in node.pairs}
