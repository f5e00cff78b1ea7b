"""A YAML text as a value, with the line of each part, as methods/document.py has it of JSON.

Plain words mean what YAML 1.2's core schema says: `yes` and `2026-01-31` are texts, and 1:30 is no
number. Nothing is ever made of a tag, and aliases cannot make a small file large.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from dshpc_setup.methods.model import Problem
from dshpc_setup.methods.shown import Path, path_text, shown
from dshpc_setup.terminal.printed import plain

MOST_BYTES = 256 * 1024
MOST_DEPTH = 16
MOST_PARTS = 20_000  # what aliases stand for counted each time
MOST_PROBLEMS = 50

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,20}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?")
_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Document:
    """`value` is None where the text could not be read to its end (`is_whole` false).

    `texts` are plain words as they were written: 1e-3, 0755.
    """

    value: Any
    lines: Mapping[Path, int] = field(default_factory=dict)
    texts: Mapping[Path, str] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    is_whole: bool = True

    def line(self, path: Path) -> int:
        """Where that part stands, or the nearest part around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


@dataclass(eq=False)
class _Node:
    line: int
    value: Any = None  # of a scalar
    text: str | None = None  # of a plain one, as written
    pairs: list[tuple[str, int, _Node]] | None = None
    items: list[_Node] | None = None


class _BrokenError(Exception):
    """The text cannot be read any further; the problem is noted."""


def read(data: bytes) -> Document:
    """The document in a file's bytes; never raises."""
    if len(data) > MOST_BYTES:
        what = f"The file is larger than {MOST_BYTES // 1024} KiB."
        return _unread(1, what, "A workflow is a page or two: put data into files of their own.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + data[: error.start].count(b"\n")
        what = f"The byte 0x{data[error.start]:02x} is not UTF-8."
        return _unread(line, what, "Save the file as UTF-8.")
    return parse(text)


def _unread(line: int, what: str, right: str) -> Document:
    return Document(None, problems=(Problem("$", line, what, right),), is_whole=False)


def parse(text: str) -> Document:
    """The document in a text; never raises."""
    reader = _Reader()
    try:
        root = reader.root(text)
        lines: dict[Path, int] = {}
        texts: dict[Path, str] = {}
        value = reader.flat(root, (), lines, texts)
    except _BrokenError:
        return Document(None, problems=tuple(reader.problems), is_whole=False)
    return Document(value, lines, texts, tuple(reader.problems))


class _Reader:
    """Two passes: events become nodes, nodes become values with their paths."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._anchors: dict[str, _Node | None] = {}  # None: it is not at its end yet
        self._parts = 0

    def _note(self, line: int, what: str, right: str, path: Path = ()) -> None:
        self.problems.append(Problem(path_text(path), line, what, right))
        if len(self.problems) >= MOST_PROBLEMS:
            raise _BrokenError

    def _broken(self, line: int, what: str, right: str) -> NoReturn:
        self._note(line, what, right)
        raise _BrokenError

    def root(self, text: str) -> _Node:
        try:
            return self._root(yaml.parse(text, Loader=yaml.SafeLoader))
        except yaml.YAMLError as error:
            self._not_yaml(error)
        except (ValueError, OverflowError):  # of an escape such as "\UFFFFFFFF"
            self._broken(1, "An escape in a text is no character.", "Write the character itself.")

    def _root(self, events: Iterator[Any]) -> _Node:
        found: _Node | None = None
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if found is not None:
                    line = _line(event)
                    self._broken(line, "A second document begins here.", "A file holds one.")
                found = self._node(next(events), events, 0)
        if found is None:
            self._broken(1, "The file is empty.", "It holds jobs: and, under it, each job's name.")
        return found

    def _not_yaml(self, error: yaml.YAMLError) -> NoReturn:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        right = "Indent with spaces, and put texts that hold : # or quotes in quotes."
        if "'\\t'" in said:
            right = "Indent with spaces: YAML has no tabs there."
        self._broken(mark.line + 1 if mark else 1, f"It is not YAML: {_plain(said)}.", right)

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        line = _line(event)
        self._check_depth(depth, line)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None and event.tag != "!":
            what = f"A tag ({shown(event.tag)}) stands here, and no part of a workflow has one."
            self._broken(line, what, "Take it out.")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._filled(event, events, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _check_depth(self, depth: int, line: int) -> None:
        if depth > MOST_DEPTH:
            what = f"Lists and keys lie more than {MOST_DEPTH} deep in each other."
            self._broken(line, what, "No part of a workflow needs that.")

    def _alias(self, event: Any) -> _Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            known = event.anchor in self._anchors
            why = "stands for a part that it lies in itself" if known else "stands for nothing"
            what = f"*{_plain(str(event.anchor))} {why}."
            self._broken(_line(event), what, "Name a part that &NAME marks further up.")
        return node

    def _filled(self, event: Any, events: Iterator[Any], depth: int) -> _Node:
        line = _line(event)
        if isinstance(event, yaml.ScalarEvent):
            if _HALF.search(event.value):
                self._broken(line, "A text holds half of a pair, which is no character.",
                             "Write the character itself.")  # fmt: skip
            if event.style is None and event.tag is None:
                return _Node(line, value=_meant(event.value), text=event.value)
            return _Node(line, value=event.value)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self._node(event, events, depth + 1))
            return _Node(line, items=items)
        pairs = []
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            at = _line(event)
            key = self._key(event)
            pairs.append((key, at, self._node(next(events), events, depth + 1)))
        return _Node(line, pairs=pairs)

    def _key(self, event: Any) -> str:
        line = _line(event)
        if not isinstance(event, yaml.ScalarEvent) or event.tag not in (None, "!"):
            self._broken(line, "A key is no plain text.", "Write NAME: VALUE.")
        if event.value == "<<" and event.style is None:
            right = "Give the whole part a mark (&NAME) and repeat it as *NAME."
            self._broken(line, "Merge keys (<<) are not understood here.", right)
        if event.anchor is not None or _HALF.search(event.value):
            self._broken(line, "A key is no plain text.", "Write NAME: VALUE.")
        return str(event.value)

    def flat(self, node: _Node, path: Path, lines: dict[Path, int], texts: dict[Path, str]) -> Any:
        """The node's value; `lines` and `texts` get what lies in it."""
        self._parts += 1
        if self._parts > MOST_PARTS:
            what = f"The workflow has more than {MOST_PARTS} parts, aliases counted each time."
            self._broken(node.line, what, "Cut it in several.")
        self._check_depth(len(path), node.line)  # an alias adds to it
        lines.setdefault(path, node.line)
        if node.items is not None:
            return [
                self.flat(each, (*path, at), lines, texts) for at, each in enumerate(node.items)
            ]
        if node.pairs is None:
            if node.text is not None:
                texts[path] = node.text
            return node.value
        found: dict[str, Any] = {}
        for key, line, part in node.pairs:
            member = (*path, key)
            if key in found:
                what = f"The key {shown(key)} comes twice, first in line {lines[member]}."
                self._note(line, what, "Keep one of the two.", member)
                continue
            lines[member] = line
            found[key] = self.flat(part, member, lines, texts)
        return found


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _plain(text: str) -> str:
    return plain(text)[:200]


def _meant(word: str) -> Any:
    """What a word without quotes is."""
    if word in _NULL:
        return None
    if word in _TRUTH:
        return _TRUTH[word]
    if _INTEGER.fullmatch(word):
        return int(word, 0) if word[:2] in ("0x", "0o") else int(word)
    if _FLOAT.fullmatch(word):
        value = float(word)
        return word if value in (float("inf"), float("-inf")) else value
    return word
