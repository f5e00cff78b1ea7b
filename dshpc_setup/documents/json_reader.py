"""A JSON text read with the line of each part; what is wrong with it, in plain words.

Goes on behind what it can read over (comments, trailing and missing commas, keys that come twice), so
that one look names all of it. Python's own `json` says one thing at a time, and forgets where a
value stood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dshpc_setup.documents.document import Problem
from dshpc_setup.documents.json_scanner import BrokenError, Scanner
from dshpc_setup.documents.shown import Path, shown

MOST_DEPTH = 32


class Reader(Scanner):
    """One look at a text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._lines: dict[Path, int] = {}

    def read(self) -> tuple[Any, tuple[Problem, ...], bool]:
        """The value, what is wrong, and whether the text could be read to its end."""
        try:
            value = self._whole()
        except BrokenError:
            return None, tuple(self.problems), False
        return value, tuple(self.problems), True

    def lines(self) -> Mapping[Path, int]:
        """Where each part stands, as far as the text can be read."""
        if not self._lines:
            self.read()
        return self._lines

    def _whole(self) -> Any:
        if self.text.startswith("\ufeff"):
            self.note(
                0,
                "The file begins with a byte order mark (BOM), which JSON does not have.",
                'Save it as "UTF-8", not as "UTF-8 with BOM".',
            )
            self.at = 1
        self.skip()
        if self.at >= len(self.text):
            self.broken(self.at, "The file is empty.", "It holds one object: { ... }.")
        self._lines[()] = self.line(self.at)
        value = self._value((), 0)
        self.skip()
        if self.at < len(self.text):
            self.broken(
                self.at,
                f"Behind the end of the document stands {self.here()}.",
                "A file holds one object and nothing behind its closing brace.",
            )
        return value

    def _value(self, path: Path, depth: int) -> Any:
        if depth > MOST_DEPTH:
            self.broken(
                self.at,
                f"Lists and objects lie more than {MOST_DEPTH} deep in each other.",
                "No part of such a file needs that: look for a bracket too many.",
            )
        first = self.text[self.at : self.at + 1]
        if first == '"':
            value: Any = self.string()
        elif first == "{":
            return self._object(path, depth)
        elif first == "[":
            return self._list(path, depth)
        else:
            value = self.number_or_word(first)
        self.end = self.at
        return value

    def _list(self, path: Path, depth: int) -> list[Any]:
        found: list[Any] = []
        for _ in self._parts("]"):
            item = (*path, len(found))
            self._lines[item] = self.line(self.at)
            found.append(self._value(item, depth + 1))
        return found

    def _object(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in self._parts("}"):
            at = self.at
            key = self._key()
            member = (*path, key)
            if key in found:
                first = self._lines[member]
                self.note(
                    at,
                    f"The key {shown(key)} comes twice, first in line {first}.",
                    "Keep one of the two.",
                    member,
                )
            self._lines[member] = self.line(at)
            self.skip()
            if not self.text.startswith(":", self.at):
                self.broken(
                    self.at,
                    f"A colon is expected behind the key {shown(key)}, and there is {self.here()}.",
                    f"Write {shown(key)}: VALUE.",
                )
            self.at += 1
            self.skip()
            found[key] = self._value(member, depth + 1)
        return found

    def _key(self) -> str:
        if self.at >= len(self.text):
            self.broken(self.at, "The file ends within an object.", "A closing } is missing.")
        if not self.text.startswith('"', self.at):
            self.broken(
                self.at,
                f"A key in double quotes is expected here, and there is {self.here()}.",
                'Keys are written "name": with double quotes around them.',
            )
        return self.string()

    def _parts(self, closing: str) -> Iterator[None]:
        """Stop at the beginning of each part of a list or object, and behind its end."""
        opened, kind = self.at, "a list" if closing == "]" else "an object"
        self.at += 1
        self.skip()
        comma = -1
        while not self.text.startswith(closing, self.at):
            if self.at >= len(self.text):
                self.broken(
                    self.at,
                    f"The file ends within {kind} that begins in line {self.line(opened)}.",
                    f"A closing {closing} is missing.",
                )
            yield
            self.skip()
            comma = -1
            if self.text.startswith(",", self.at):
                comma = self.at
                self.at += 1
                self.skip()
            elif not self.text.startswith(closing, self.at):
                self._no_comma(closing, kind)
        if comma >= 0:
            self.note(
                comma,
                f"A comma behind the last part of {kind}.",
                "Take it out: JSON has commas between parts only.",
            )
        self.at += 1
        self.end = self.at

    def _no_comma(self, closing: str, kind: str) -> None:
        """Read on where only the comma is missing."""
        following = self.text[self.at : self.at + 1]
        if following == '"' or (closing == "]" and following in ("{", "[")):
            self.note(self.end, "A comma is missing here.", "Parts are parted by commas.")
        elif following:
            self.broken(
                self.at,
                f"A comma or a closing {closing} is expected here, and there is {self.here()}.",
                f"The parts of {kind} are parted by commas.",
            )
