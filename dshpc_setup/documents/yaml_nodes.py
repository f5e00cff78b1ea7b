"""YAML as nodes that know their places, of a file that somebody else wrote.

Built of the parser's events: PyYAML's own loader crashes on what is nested deeply, and a few lines of
merge keys fill its memory. Imported only where there is a file to read: PyYAML takes fifteen
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from dshpc_setup.documents.document import Mark

NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_DEEPEST = 12
_OPEN = object()  # the value of an anchor that is not at its end yet


@dataclass(eq=False, slots=True)
class Node:
    """A part of the text; an alias is the very node that it stands for."""

    kind: Literal["scalar", "list", "mapping"]
    begins: Any  # the parser's marks, whose lines and columns count from 0
    ends: Any
    tag: str | None = None
    anchor: str | None = None
    text: str = ""  # of a scalar
    style: str = ""  # of a scalar: ' " | > or, of a plain one, ""
    items: Sequence[Node] = ()
    pairs: Sequence[tuple[Node, Node]] = ()

    @property
    def place(self) -> Mark:
        return _place(self.begins)

    @property
    def is_plain(self) -> bool:
        """Whether it is a word without quotes or a tag, which may mean a number or nothing at all."""
        return self.kind == "scalar" and not self.style and self.tag is None


class YamlError(ValueError):
    """What is wrong with a text, and where; `name` is that of an alias."""

    def __init__(
        self,
        kind: Literal["syntax", "escape", "deep", "unknown", "inside", "second"],
        said: str,
        place: Mark | None = None,
        *,
        name: str = "",
        where: str = "",
    ) -> None:
        if place is not None:
            where = f"line {place.line}, column {place.column}: "
        super().__init__(f"{where}{said}")
        self.kind, self.said, self.place, self.name = kind, said, place, name


def read(text: str, *, deepest: int, aliases: bool = True) -> Node | None:
    """The one document as nodes, None where there is none; raises YamlError.

    `deepest` is how many lists and mappings may lie around a part, as it is written.
    """
    found: Node | None = _made(text, yaml.SafeLoader, _Builder(_node, deepest, aliases))
    return found


def load(text: str) -> Any:
    """The first document: dict, list, str or None; every number is a str. Raises YamlError.

    Of keys that come twice the last counts, and what is no text as a key is left out. It is read with
    libyaml where that is there, which words its errors otherwise.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return _made(text, loader, _Builder(_plain, _DEEPEST, only_first=True))


def _made(text: str, loader: Any, builder: _Builder) -> Any:
    try:
        return builder.document(iter(yaml.parse(text, Loader=loader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = error.problem or error.context or "this is no YAML"
        raise YamlError("syntax", said, _place(mark) if mark else None) from error
    except yaml.reader.ReaderError as error:
        where = f"character {error.position}: "
        raise YamlError("syntax", error.reason, where=where) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError("syntax", " ".join(str(error).split())) from error
    except (ValueError, OverflowError) as error:  # of an escape such as "\UFFFFFFFF"
        if isinstance(error, YamlError):
            raise
        raise YamlError("escape", "an escape in a text is no character") from error


def _node(event: Any, parts: list[Any], ends: Any) -> Node:
    begins, tag, anchor = event.start_mark, event.tag, event.anchor
    if isinstance(event, yaml.ScalarEvent):
        return Node("scalar", begins, ends, tag, anchor, event.value, event.style or "")
    if isinstance(event, yaml.SequenceStartEvent):
        return Node("list", begins, ends, tag, anchor, items=parts)
    return Node("mapping", begins, ends, tag, anchor, pairs=parts)


def _plain(event: Any, parts: list[Any], _: Any) -> Any:
    if isinstance(event, yaml.ScalarEvent):
        return None if event.implicit[0] and event.value in NULLS else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        return parts
    return {key: value for key, value in parts if isinstance(key, str)}


def typed(node: Node) -> Any:
    """Also numbers, dates and words for yes and no, as YAML 1.1 has them and PyYAML writes them.

    For a document without aliases. Raises whatever PyYAML does for a number that is none, or a tag.
    """
    loader = yaml.SafeLoader("")

    def value(part: Node) -> Any:
        if part.kind == "scalar":
            implicit = (not part.style, True)
            tag = part.tag
            if tag in (None, "!"):
                tag = loader.resolve(yaml.ScalarNode, part.text, implicit)  # type: ignore[no-untyped-call]
            scalar = yaml.ScalarNode(tag, part.text, part.begins, part.ends)
            return loader.construct_object(scalar)
        if part.tag is not None:
            raise YamlError("syntax", f"the tag {part.tag} is not allowed here", part.place)
        if part.kind == "list":
            return [value(item) for item in part.items]
        return {value(key): value(each) for key, each in part.pairs}

    return value(node)


class _Builder:
    """From events to what `make` makes of each part: of its event, of what lies in it, and of its end."""

    def __init__(
        self,
        make: Callable[[Any, list[Any], Any], Any],
        deepest: int,
        aliases: bool = True,
        *,
        only_first: bool = False,
    ) -> None:
        self._make, self._deepest, self._aliases = make, deepest, aliases
        self._only_first = only_first  # of several documents, and the others are not looked at
        self._anchors: dict[str, Any] = {}

    def document(self, events: Iterator[Any]) -> Any:
        found, seen = None, False
        for event in events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if seen:
                raise YamlError("second", "but found another document", _place(event.start_mark))
            found, seen = self._part(next(events), events, 0), True
            if self._only_first:
                break
        return found

    def _part(self, event: Any, events: Iterator[Any], depth: int) -> Any:
        if depth > self._deepest:
            raise YamlError("deep", "this is nested too deeply", _place(event.start_mark))
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _OPEN
        parts: list[Any] = []
        ends = event.end_mark
        if isinstance(event, yaml.CollectionStartEvent):
            is_list = isinstance(event, yaml.SequenceStartEvent)
            while not isinstance(inner := next(events), yaml.CollectionEndEvent):
                part = self._part(inner, events, depth + 1)
                if not is_list:
                    part = part, self._part(next(events), events, depth + 1)
                parts.append(part)
            ends = inner.end_mark
        found = self._make(event, parts, ends)
        if event.anchor is not None:
            self._anchors[event.anchor] = found
        return found

    def _alias(self, event: Any) -> Any:
        name, place = str(event.anchor)[:40], _place(event.start_mark)
        if not self._aliases:
            raise YamlError("syntax", "aliases (*name) are not allowed here", place)
        if self._anchors.get(event.anchor, _OPEN) is _OPEN:
            kind: Literal["inside", "unknown"]
            kind = "inside" if event.anchor in self._anchors else "unknown"
            raise YamlError(kind, f"nothing is called *{name}", place, name=name)
        return self._anchors[event.anchor]


def _place(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)
