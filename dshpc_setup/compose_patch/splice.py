"""Where lines can be put into a block of YAML, and how they are indented there. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dshpc_setup.compose_patch.document import Document
from dshpc_setup.compose_patch.nodes import Node, walked

_STEP = 2
_KEEPS = re.compile(r"[|>][1-9]?\+")


@dataclass(frozen=True)
class Layout:
    """How the file indents: a mapping's keys by `step`, a list below its key by `dash`."""

    step: int
    dash: int


@dataclass(frozen=True)
class Place:
    """Before which line (from 0) lines go in, and how far they are indented."""

    line: int
    column: int


@dataclass(frozen=True)
class Block:
    """Lines to put in there; of those at one place the deepest come first."""

    place: Place
    depth: int
    lines: tuple[str, ...]


def layout(document: Document, key: Node, service: Node) -> Layout:
    """As the service is indented, else as the first list of the file is, else by two."""
    step = column_of(document, service) - _column(document, key.start)
    for root in (service, document.root):
        for node in sorted(walked(root), key=lambda each: each.start):
            for pair in node.pairs if not node.flow else ():
                value = pair.value
                if value.kind == "sequence" and not value.flow and not pair.alias and value.items:
                    dash = column_of(document, value) - _column(document, pair.key.start)
                    if dash >= 0:
                        return Layout(step, dash)
    return Layout(step, step)


def place_in(document: Document, block: Node) -> Place:
    """At the end of a block mapping or sequence; at its beginning where the end is no safe place.

    Comments below the last entry, indented as it is or more, stay with it.
    """
    column = column_of(document, block)
    _only_spaces(document, block)
    last = max(
        (token for token in document.tokens if token.start < block.end), key=lambda token: token.end
    )
    text = document.text[last.start : last.end]
    keeps = last.block and _KEEPS.match(text)
    end = last.start + len(text.rstrip()) if last.block else last.end
    line = document.line_of(max(last.start, end - 1))
    open_end = last.block and line == len(document.lines) - 1
    if keeps or (open_end and not document.text.endswith("\n")):
        # blank lines, or a line end, below it would be part of what it says
        return Place(document.line_of(_first(document, block)), column)
    line += 1
    while line < len(document.lines) and _is_comment(document.lines[line], column):
        line += 1
    return Place(line, column)


def put_in(document: Document, blocks: Iterable[Block]) -> str:
    """The text with the blocks in it; every other line stays as it is."""
    lines = list(document.lines)
    end = _line_end(document)
    at_end: list[str] = []
    # from the last place upwards, so that the numbers above it stay true
    ordered = sorted(blocks, key=lambda block: (block.place.line, -block.depth))
    for block in reversed(ordered):
        new = [f"{line}{end}" for line in block.lines]
        if block.place.line >= len(lines) and lines and not lines[-1].endswith("\n"):
            at_end = [*block.lines, *at_end]
        else:
            lines[block.place.line : block.place.line] = new
    return "".join(lines) + "".join(f"{end}{line}" for line in at_end)


def column_of(document: Document, block: Node) -> int:
    """How far the keys of a block mapping, or the dashes of a sequence, are indented."""
    return _column(document, _first(document, block))


def _first(document: Document, block: Node) -> int:
    """Offset of its first key or dash."""
    if block.kind == "mapping":
        return block.pairs[0].key.start
    return next(
        token.start
        for token in document.tokens
        if token.kind == "BlockEntry" and token.start >= block.start
    )


def _column(document: Document, offset: int) -> int:
    start = document.start_of(document.line_of(offset))
    return offset - start - (1 if document.text[start : start + 1] == "\ufeff" else 0)


def _only_spaces(document: Document, block: Node) -> None:
    """Raises DshpcError where something else than blanks stands before the first entry."""
    offset = _first(document, block)
    before = document.text[document.start_of(document.line_of(offset)) : offset]
    if before.strip(" \ufeff"):
        raise document.refusal(
            offset,
            "lines cannot be added here, as this one begins with something else than spaces.",
            "",
            "Begin the entry on a line of its own, indented by spaces, then run this again.",
        )


def _is_comment(line: str, column: int) -> bool:
    stripped = line.lstrip(" ")
    return stripped.startswith("#") and len(line) - len(stripped) >= column


def _line_end(document: Document) -> str:
    """As the first line of the file ends."""
    first = next((line for line in document.lines if line.endswith("\n")), "\n")
    return "\r\n" if first.endswith("\r\n") else "\n"
