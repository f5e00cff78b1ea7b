"""A compose file as nodes that know where they stand in the text. Pure: text in, values out.

The parser is ruamel.yaml's; what it composes is copied into values of our own, so that aliases are
told from what they stand for, and so that two texts can be compared node by node.
"""

from __future__ import annotations

import bisect
import re
import warnings
from collections.abc import Collection
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scanner import Scanner

from dshpc_setup.compose_patch.nodes import MERGE, Kind, Node, Pair, Token, walked
from dshpc_setup.documents.document import Mark
from dshpc_setup.errors import DshpcError

BOM = "\ufeff"
_MOST_LEVELS = 100
_MOST_NODES = 1_000_000
_MOST_SHOWN = 100
# Breaks to some readers of YAML and not to others: where a line ends must not be a matter of taste
_ODD_BREAK = re.compile("\r(?!\n)|[\x85\u2028\u2029\ufeff]")


class Document:
    """A parsed compose file; raises DshpcError where `text` is not one YAML document."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.lines = _split(text)
        self._starts = _offsets(self.lines)
        self._skip = len(BOM) if text.startswith(BOM) else 0
        odd = _ODD_BREAK.search(text, self._skip)
        if odd:
            raise self.refusal(
                odd.start(),
                f"the character U+{ord(odd[0]):04X} ends a line for some readers of YAML only.",
                "",
                "Replace it by an ordinary line end.",
            )
        self.tokens: list[Token] = []
        self.root = self._parsed()
        self._no_duplicates()

    # Places

    def line_of(self, offset: int) -> int:
        """Number of the line that holds it, from 0."""
        return max(0, bisect.bisect_right(self._starts, offset) - 1)

    def start_of(self, line: int) -> int:
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def place(self, offset: int) -> str:
        """ "compose.yml:12:5", as editors count."""
        line = self.line_of(offset)
        start = self.start_of(line) + (self._skip if line == 0 else 0)
        return Mark(line + 1, max(0, offset - start) + 1).within(self.file)

    def shown(self, offset: int) -> str:
        """The line there, for an error message."""
        if not self.lines:
            return ""
        plain = "".join(c if c.isprintable() else " " for c in self.lines[self.line_of(offset)])
        line = " ".join(plain.split())
        return line if len(line) <= _MOST_SHOWN else f"{line[:_MOST_SHOWN]}..."

    def refusal(self, offset: int, what: str, details: str = "", *todo: str) -> DshpcError:
        """Why nothing is written: the place, what stands there, what to do."""
        line = self.shown(offset)
        says = f"It says: {line}" if line else ""
        text = "\n".join(part for part in (says, details) if part)
        return DshpcError(f"{self.place(offset)}: {what}", text, todo)

    # Reading

    def _parsed(self) -> Node:
        text = self.text[self._skip :]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an anchor that is set twice, an old version
                composed, self.tokens = _composed(text, self._skip)
        except RecursionError:
            raise self._too_deep() from None
        except YAMLError as error:
            raise self._invalid(error) from None
        if not composed:
            raise self.refusal(0, "the file holds no services.", "", "Name a compose file.")
        if len(composed) > 1:
            raise self.refusal(
                composed[1].start_mark.index + self._skip,
                "a second YAML document begins here; a compose file is one.",
                "",
                "Keep each in a file of its own.",
            )
        return self._copied(composed[0], {}, 0)[0]

    def _copied(self, found: Any, known: dict[int, Node], level: int) -> tuple[Node, bool]:
        """The node, and whether it was met before: then this is an alias."""
        if id(found) in known:
            there = known[id(found)]
            if not there.weight:
                what = f"&{there.anchor} begins here, and *{there.anchor} is in it."
                raise self.refusal(there.start, what, "", "Write out what is meant there.")
            there.uses += 1
            return there, True
        if level > _MOST_LEVELS:
            raise self._too_deep()
        kind: Kind = found.id
        node = Node(
            kind,
            str(found.tag),
            str(found.value) if kind == "scalar" else "",
            bool(getattr(found, "flow_style", False)),
            found.start_mark.index + self._skip,
            found.end_mark.index + self._skip,
            found.anchor,
        )
        known[id(found)] = node
        if kind == "mapping":
            for key, value in found.value:
                copied = self._copied(key, known, level + 1)[0]
                node.pairs.append(Pair(copied, *self._copied(value, known, level + 1)))
        elif kind == "sequence":
            node.items += [self._copied(item, known, level + 1)[0] for item in found.value]
        parts = node.parts
        node.weight = 1 + sum(part.weight for part in parts)
        node.height = 1 + max((part.height for part in parts), default=0)
        if node.height > _MOST_LEVELS or node.weight > _MOST_NODES:
            raise self._too_deep()
        return node, False

    def _no_duplicates(self) -> None:
        for node in walked(self.root):
            seen: dict[tuple[str, str], Node] = {}
            for pair in node.pairs:
                name = (pair.key.tag, pair.key.text)
                if pair.key.kind != "scalar" or pair.key.uses > 1 or pair.key.tag == MERGE:
                    continue
                if name in seen:
                    raise self.refusal(
                        pair.key.start,
                        f"the key {pair.key.text!r} stands here twice.",
                        f"First: {self.place(seen[name].start)}",
                        "Keep one of the two.",
                    )
                seen[name] = pair.key

    def _invalid(self, error: Exception) -> DshpcError:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        position = mark.index if mark is not None else getattr(error, "position", 0)
        offset = (position if isinstance(position, int) else 0) + self._skip
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        return self.refusal(
            min(offset, max(0, len(self.text) - 1)),
            f"this is not valid YAML: {' '.join(str(said).split())}.",
            "A tab stands where YAML takes only spaces." if "\\t" in str(said) else "",
            "Correct that line, then run this again.",
        )

    def _too_deep(self) -> DshpcError:
        what = "it is nested too deeply, or its aliases stand for too much, to be read."
        return self.refusal(0, what, "", "Name a compose file.")


class _Scanner(Scanner):
    """ruamel's, which also keeps what it has read: `found`."""

    def __init__(self, loader: YAML) -> None:
        super().__init__(loader)
        self.found: list[Any] = []

    def get_token(self) -> Any:
        self.found.append(super().get_token())
        return self.found[-1]


def _composed(text: str, skip: int) -> tuple[list[Any], list[Token]]:
    """The documents as ruamel's nodes, and the tokens that they are made of."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = _Scanner
    composed = list(yaml.compose_all(text))
    return composed, [_token(each, skip) for each in yaml.scanner.found if _length(each)]


def _token(token: Any, skip: int) -> Token:
    kind = type(token).__name__.removesuffix("Token")
    start, end = token.start_mark.index + skip, token.end_mark.index + skip
    return Token(kind, start, end, getattr(token, "style", None) in ("|", ">"))


def _length(token: Any) -> int:
    return int(token.end_mark.index - token.start_mark.index)


def _split(text: str) -> list[str]:
    """The lines, each with its end; only line feeds end one."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _offsets(lines: list[str]) -> list[int]:
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line)
    return starts


def shape(document: Document, without: Collection[int] = ()) -> Any:
    """All that the document says, to compare; what begins on a line of `without` is left out.

    Kinds, tags, anchors, texts and order count; an alias is the number of what it stands for.
    """
    known: dict[int, int] = {}

    def stays(node: Node) -> bool:
        return not without or document.line_of(node.start) not in without

    def of(node: Node) -> Any:
        if id(node) in known:
            return known[id(node)]
        known[id(node)] = len(known)
        head = (node.kind, node.tag, node.anchor, node.flow, node.text)
        if node.kind == "mapping":
            pairs = [pair for pair in node.pairs if stays(pair.key)]
            return (*head, tuple((of(pair.key), of(pair.value)) for pair in pairs))
        return (*head, tuple(of(item) for item in node.items if stays(item)))

    return of(document.root)
