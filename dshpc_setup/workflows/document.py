"""The YAML text of a workflow as a document.

Plain words mean what YAML 1.2's core schema says: `yes` and `2026-01-31` are texts, and 1:30 is no
number. Nothing is ever made of a tag, and aliases cannot make a small file large.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from dshpc_setup.documents import document, yaml_nodes
from dshpc_setup.documents.document import MOST_PROBLEMS, Document, Problem
from dshpc_setup.documents.json_scanner import HALF
from dshpc_setup.documents.shown import Path, path_text, shown
from dshpc_setup.documents.yaml_nodes import NULLS, Node, YamlError
from dshpc_setup.terminal.sanitize import plain

MOST_DEPTH = 16
MOST_PARTS = 20_000  # what aliases stand for counted each time

_INTEGER = re.compile(r"[-+]?[0-9]{1,40}|0x[0-9a-fA-F]{1,16}|0o[0-7]{1,20}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?")
_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


class _BrokenError(Exception):
    """The text cannot be read any further; the problem is noted."""


def read(data: bytes) -> Document:
    """The document in a file's bytes; never raises."""
    right = "A workflow is a page or two: put data into files of their own."
    return document.read(data, parse, right)


def parse(text: str) -> Document:
    """The document in a text; never raises."""
    reader = _Reader()
    try:
        value = reader.value(text.removeprefix("\ufeff"))
    except _BrokenError:
        return document.broken(*reader.problems)
    return Document(value, tuple(reader.problems), texts=reader.texts, find_lines=reader.found)


class _Reader:
    """One look at a text: its nodes become values with their paths."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.texts: dict[Path, str] = {}
        self._lines: dict[Path, int] = {}
        self._parts = 0

    def found(self) -> dict[Path, int]:
        return self._lines

    def _note(self, line: int, what: str, right: str, path: Path = ()) -> None:
        self.problems.append(Problem(path_text(path), line, what, right))
        if len(self.problems) >= MOST_PROBLEMS:
            raise _BrokenError

    def _broken(self, line: int, what: str, right: str) -> NoReturn:
        self._note(line, what, right)
        raise _BrokenError

    def value(self, text: str) -> Any:
        try:
            root = yaml_nodes.read(text, deepest=MOST_DEPTH)
        except YamlError as error:
            self._unread(error)
        if root is None:
            self._broken(1, "The file is empty.", "It holds jobs: and, under it, each job's name.")
        return self._value(root, ())

    def _unread(self, error: YamlError) -> NoReturn:
        line = error.place.line if error.place is not None else 1
        if error.kind == "deep":
            self._too_deep(line)
        if error.kind in ("unknown", "inside"):
            is_inside = error.kind == "inside"
            why = "stands for a part that it lies in itself" if is_inside else "stands for nothing"
            right = "Name a part that &NAME marks further up."
            self._broken(line, f"*{_plain(error.name)} {why}.", right)
        if error.kind == "second":
            self._broken(line, "A second document begins here.", "A file holds one.")
        if error.kind == "escape":
            right = "Write the character itself."
            self._broken(line, "An escape in a text is no character.", right)
        right = "Indent with spaces, and put texts that hold : # or quotes in quotes."
        if "'\\t'" in error.said:
            right = "Indent with spaces: YAML has no tabs there."
        self._broken(line, f"It is not YAML: {_plain(error.said)}.", right)

    def _too_deep(self, line: int) -> NoReturn:
        what = f"Lists and keys lie more than {MOST_DEPTH} deep in each other."
        self._broken(line, what, "No part of a workflow needs that.")

    def _value(self, node: Node, path: Path) -> Any:
        line = node.place.line
        self._parts += 1
        if self._parts > MOST_PARTS:
            what = f"The workflow has more than {MOST_PARTS} parts, aliases counted each time."
            self._broken(line, what, "Cut it in several.")
        if len(path) > MOST_DEPTH:  # an alias adds to it
            self._too_deep(line)
        if node.tag is not None and node.tag != "!":
            what = f"A tag ({shown(node.tag)}) stands here, and no part of a workflow has one."
            self._broken(line, what, "Take it out.")
        self._lines.setdefault(path, line)
        if node.kind == "list":
            return [self._value(each, (*path, at)) for at, each in enumerate(node.items)]
        if node.kind == "mapping":
            return self._mapping(node, path)
        if HALF.search(node.text):
            what = "A text holds half of a pair, which is no character."
            self._broken(line, what, "Write the character itself.")
        if not node.is_plain:
            return node.text
        self.texts[path] = node.text
        return _meant(node.text)

    def _mapping(self, node: Node, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for at, part in node.pairs:
            key, line = self._key(at), at.place.line
            member = (*path, key)
            if key in found:
                what = f"The key {shown(key)} comes twice, first in line {self._lines[member]}."
                self._note(line, what, "Keep one of the two.", member)
                continue
            self._lines[member] = line
            found[key] = self._value(part, member)
        return found

    def _key(self, node: Node) -> str:
        line = node.place.line
        is_text = node.kind == "scalar" and node.tag in (None, "!") and node.anchor is None
        if is_text and node.text == "<<" and not node.style:
            right = "Give the whole part a mark (&NAME) and repeat it as *NAME."
            self._broken(line, "Merge keys (<<) are not understood here.", right)
        if not is_text or HALF.search(node.text):
            self._broken(line, "A key is no plain text.", "Write NAME: VALUE.")
        return node.text


def _plain(text: str) -> str:
    return plain(text)[:200]


def _meant(word: str) -> Any:
    """What a word without quotes is."""
    if word in NULLS:
        return None
    if word in _TRUTH:
        return _TRUTH[word]
    if _INTEGER.fullmatch(word):
        return int(word, 0) if word[:2] in ("0x", "0o") else int(word)
    if _FLOAT.fullmatch(word):
        value = float(word)
        return word if value in (float("inf"), float("-inf")) else value
    return word
