"""A JSON text read with the line of each part; what is wrong with it, in plain words.

Exact to RFC 8259. Goes on behind what it can read over (comments, trailing and missing commas, keys
that come twice), so that one look names all of it. Python's own `json` says one thing at a time, and
forgets where a value stood.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from dshpc_setup.methods.model import Problem
from dshpc_setup.methods.shown import Path, path_text, shown

MOST_DEPTH = 32
MOST_PROBLEMS = 50
LONGEST_NUMBER = 40
LINE_END = re.compile(r"\r\n|\n|\r")
HALF = re.compile("[\ud800-\udfff]")  # of a pair of UTF-16, which is no character

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|#[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_PLAIN = re.compile(r'"([^"\\\x00-\x1f\ud800-\udfff]*)"')
_TEXT = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_UNCLOSED = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[^\s,:\[\]{}\"']+")
_WORDS = {"true": True, "false": False, "null": None}
_MEANT = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false", "None": "null"}
_MEANT |= {"NULL": "null", "NA": "null", "undefined": "null"}


class _BrokenError(Exception):
    """The text cannot be read any further; the problem is noted."""


class Reader:
    """One pass over a text; `at` is where it stands, `end` where the last part ended."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = self._end = 0
        self._starts = [0, *(found.end() for found in LINE_END.finditer(text))]
        self._last = max(0, len(text.rstrip(" \t\r\n")) - 1)
        self._lines: dict[Path, int] = {}
        self._problems: list[Problem] = []

    def read(self) -> tuple[Any, tuple[Problem, ...], bool]:
        """The value, what is wrong, and whether the text could be read to its end."""
        try:
            value = self._whole()
        except _BrokenError:
            return None, tuple(self._problems), False
        return value, tuple(self._problems), True

    def lines(self) -> Mapping[Path, int]:
        """Where each part stands, as far as the text can be read."""
        self.read()
        return self._lines

    def _whole(self) -> Any:
        if self._text.startswith("\ufeff"):
            self._note(
                0,
                "The file begins with a byte order mark (BOM), which JSON does not have.",
                'Save it as "UTF-8", not as "UTF-8 with BOM".',
            )
            self._at = 1
        self._skip()
        if self._at >= len(self._text):
            self._broken(self._at, "The file is empty.", "It holds one object: { ... }.")
        self._lines[()] = self._line(self._at)
        value = self._value((), 0)
        self._skip()
        if self._at < len(self._text):
            self._broken(
                self._at,
                f"Behind the end of the document stands {self._here()}.",
                "A file holds one object and nothing behind its closing brace.",
            )
        return value

    def _line(self, at: int) -> int:
        # What is missing at the end is missing behind the last character, not on an empty line
        return bisect_right(self._starts, min(at, self._last))

    def _note(self, at: int, what: str, right: str, path: Path = ()) -> None:
        line = self._line(at)
        column = min(at, self._last + 1) - self._starts[line - 1] + 1
        where = f"column {column}: " if not path else ""
        self._problems.append(Problem(path_text(path), line, f"{where}{what}", right))
        if len(self._problems) >= MOST_PROBLEMS:
            raise _BrokenError

    def _broken(self, at: int, what: str, right: str) -> NoReturn:
        self._note(at, what, right)
        raise _BrokenError

    def _skip(self) -> None:
        """Over space and comments."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            comment = _COMMENT.match(self._text, self._at)
            if comment is None:
                return
            self._note(
                self._at,
                "A comment; JSON has none.",
                'Take it out, or say it in a "description".',
            )
            self._at = comment.end()

    def _here(self) -> str:
        """What stands here, in a few words."""
        if self._at >= len(self._text):
            return "the end of the file"
        word = _WORD.match(self._text, self._at)
        return shown(word[0][:40] if word else self._text[self._at])

    def _value(self, path: Path, depth: int) -> Any:
        if depth > MOST_DEPTH:
            self._broken(
                self._at,
                f"Lists and objects lie more than {MOST_DEPTH} deep in each other.",
                "No part of such a file needs that: look for a bracket too many.",
            )
        first = self._text[self._at : self._at + 1]
        if first == '"':
            value: Any = self._string()
        elif first == "{":
            return self._object(path, depth)
        elif first == "[":
            return self._list(path, depth)
        else:
            value = self._number_or_word(first)
        self._end = self._at
        return value

    def _string(self) -> str:
        plain = _PLAIN.match(self._text, self._at)
        if plain is not None:
            self._at = plain.end()
            return plain[1]
        found = _TEXT.match(self._text, self._at)
        if found is None:
            self._unclosed()
        try:
            value = json.loads(found[0])
        except ValueError:
            self._broken(
                self._at,
                "A backslash in this text begins nothing that JSON knows.",
                r"Write \\ for a backslash; JSON knows \" \\ \/ \b \f \n \r \t \uXXXX.",
            )
        if HALF.search(value):
            self._broken(
                self._at,
                r"A \u escape in this text is half of a pair, which is no character.",
                "Write the character itself.",
            )
        self._at = found.end()
        return str(value)

    def _unclosed(self) -> NoReturn:
        stop = _UNCLOSED.match(self._text, self._at)
        end = stop.end() if stop else self._at
        if end < len(self._text) and self._text[end] not in "\r\n\\":
            self._broken(
                end,
                f"A control character ({shown(self._text[end])}) stands in a text.",
                r"Write it as an escape: \t for a tab, \u001b for others.",
            )
        self._broken(
            self._at,
            "The text that begins here has no closing quote on its line.",
            r"Close it with a double quote; a line's end in a text is written \n.",
        )

    def _number_or_word(self, first: str) -> Any:
        word = _WORD.match(self._text, self._at)
        if word is None:
            self._no_value(first)
        text = word[0]
        if text in _WORDS:
            self._at = word.end()
            return _WORDS[text]
        number = _NUMBER.fullmatch(text)
        if number is None:
            self._no_number(text)
        if len(text) > LONGEST_NUMBER:
            self._broken(self._at, "The number is too long.", "Write it with fewer digits.")
        value = float(text) if number[1] or number[2] else int(text)
        if value in (float("inf"), float("-inf")):
            self._broken(self._at, "The number is too large.", "Numbers end at about 1.8e308.")
        self._at = word.end()
        return value

    def _no_number(self, text: str) -> NoReturn:
        what = f"{shown(text[:40])} is no value: it has no quotes, and is no number."
        right = f"Write it in double quotes: {shown(text[:40])}."
        if text in _MEANT:
            what = f"{text} is not a word of JSON."
            right = f"Write {_MEANT[text]}, in small letters."
        elif re.fullmatch(r"[+-]?(NaN|nan|[Ii]nf(inity)?)", text):
            what, right = f"JSON has no {text}.", "Leave the key out, or write a number."
        elif re.match(r"[+-]?\.?[0-9]", text):
            what = f"{shown(text[:40])} is not how JSON writes a number."
            right = "Numbers are written 1, -1, 0.5 or 1e-3; sizes with a unit go in double quotes."
        self._broken(self._at, what, right)

    def _no_value(self, first: str) -> NoReturn:
        if first == "'":
            self._broken(
                self._at,
                "A single quote; texts in JSON stand in double quotes.",
                "Write \"...\" and not '...'.",
            )
        what = f"A value is expected here, and there is {self._here()}."
        right = "A value is a text in double quotes, a number, true, false, null, [...] or {...}."
        self._broken(self._at, what, right)

    def _list(self, path: Path, depth: int) -> list[Any]:
        found: list[Any] = []
        for _ in self._parts("]"):
            item = (*path, len(found))
            self._lines[item] = self._line(self._at)
            found.append(self._value(item, depth + 1))
        return found

    def _object(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in self._parts("}"):
            at = self._at
            key = self._key()
            member = (*path, key)
            if key in found:
                first = self._lines[member]
                self._note(
                    at,
                    f"The key {shown(key)} comes twice, first in line {first}.",
                    "Keep one of the two.",
                    member,
                )
            self._lines[member] = self._line(at)
            self._skip()
            if not self._text.startswith(":", self._at):
                self._broken(
                    self._at,
                    f"A colon is expected behind the key {shown(key)}, "
                    f"and there is {self._here()}.",
                    f"Write {shown(key)}: VALUE.",
                )
            self._at += 1
            self._skip()
            found[key] = self._value(member, depth + 1)
        return found

    def _key(self) -> str:
        if self._at >= len(self._text):
            self._broken(self._at, "The file ends within an object.", "A closing } is missing.")
        if not self._text.startswith('"', self._at):
            self._broken(
                self._at,
                f"A key in double quotes is expected here, and there is {self._here()}.",
                'Keys are written "name": with double quotes around them.',
            )
        return self._string()

    def _parts(self, closing: str) -> Iterator[None]:
        """Stop at the beginning of each part of a list or object, and behind its end."""
        opened, kind = self._at, "a list" if closing == "]" else "an object"
        self._at += 1
        self._skip()
        comma = -1
        while not self._text.startswith(closing, self._at):
            if self._at >= len(self._text):
                self._broken(
                    self._at,
                    f"The file ends within {kind} that begins in line {self._line(opened)}.",
                    f"A closing {closing} is missing.",
                )
            yield
            self._skip()
            comma = -1
            if self._text.startswith(",", self._at):
                comma = self._at
                self._at += 1
                self._skip()
            elif not self._text.startswith(closing, self._at):
                self._no_comma(closing, kind)
        if comma >= 0:
            self._note(
                comma,
                f"A comma behind the last part of {kind}.",
                "Take it out: JSON has commas between parts only.",
            )
        self._at += 1
        self._end = self._at

    def _no_comma(self, closing: str, kind: str) -> None:
        """Read on where only the comma is missing."""
        following = self._text[self._at : self._at + 1]
        if following == '"' or (closing == "]" and following in ("{", "[")):
            self._note(self._end, "A comma is missing here.", "Parts are parted by commas.")
        elif following:
            self._broken(
                self._at,
                f"A comma or a closing {closing} is expected here, and there is {self._here()}.",
                f"The parts of {kind} are parted by commas.",
            )
