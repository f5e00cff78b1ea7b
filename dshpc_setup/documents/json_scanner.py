"""The words of a JSON text: where reading stands, texts, numbers, and what is wrong with them.

Exact to RFC 8259. How they make lists and objects is reader.py's.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any, NoReturn

from dshpc_setup.documents.document import LINE_END, MOST_PROBLEMS, Problem
from dshpc_setup.documents.shown import Path, path_text, shown

LONGEST_NUMBER = 40
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


class BrokenError(Exception):
    """The text cannot be read any further; the problem is noted."""


class Scanner:
    """One pass over a text; `at` is where it stands, `end` where the last part ended."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = self.end = 0
        self.problems: list[Problem] = []
        self._starts = [0, *(found.end() for found in LINE_END.finditer(text))]
        self._last = max(0, len(text.rstrip(" \t\r\n")) - 1)

    def line(self, at: int) -> int:
        # What is missing at the end is missing behind the last character, not on an empty line
        return bisect_right(self._starts, min(at, self._last))

    def note(self, at: int, what: str, right: str, path: Path = ()) -> None:
        line = self.line(at)
        column = min(at, self._last + 1) - self._starts[line - 1] + 1
        where = f"column {column}: " if not path else ""
        self.problems.append(Problem(path_text(path), line, f"{where}{what}", right))
        if len(self.problems) >= MOST_PROBLEMS:
            raise BrokenError

    def broken(self, at: int, what: str, right: str) -> NoReturn:
        self.note(at, what, right)
        raise BrokenError

    def skip(self) -> None:
        """Over space and comments."""
        while True:
            found = _SPACE.match(self.text, self.at)
            self.at = found.end() if found else self.at
            comment = _COMMENT.match(self.text, self.at)
            if comment is None:
                return
            self.note(
                self.at,
                "A comment; JSON has none.",
                'Take it out, or say it in a "description".',
            )
            self.at = comment.end()

    def here(self) -> str:
        """What stands here, in a few words."""
        if self.at >= len(self.text):
            return "the end of the file"
        word = _WORD.match(self.text, self.at)
        return shown(word[0][:40] if word else self.text[self.at])

    def string(self) -> str:
        plain = _PLAIN.match(self.text, self.at)
        if plain is not None:
            self.at = plain.end()
            return plain[1]
        found = _TEXT.match(self.text, self.at)
        if found is None:
            self._unclosed()
        try:
            value = json.loads(found[0])
        except ValueError:
            self.broken(
                self.at,
                "A backslash in this text begins nothing that JSON knows.",
                r"Write \\ for a backslash; JSON knows \" \\ \/ \b \f \n \r \t \uXXXX.",
            )
        if HALF.search(value):
            self.broken(
                self.at,
                r"A \u escape in this text is half of a pair, which is no character.",
                "Write the character itself.",
            )
        self.at = found.end()
        return str(value)

    def _unclosed(self) -> NoReturn:
        stop = _UNCLOSED.match(self.text, self.at)
        end = stop.end() if stop else self.at
        if end < len(self.text) and self.text[end] not in "\r\n\\":
            self.broken(
                end,
                f"A control character ({shown(self.text[end])}) is in a string.",
                r"Write it as an escape: \t for a tab, \u001b for others.",
            )
        self.broken(
            self.at,
            "The text that begins here has no closing quote on its line.",
            r"Close it with a double quote; a line's end in a text is written \n.",
        )

    def number_or_word(self, first: str) -> Any:
        word = _WORD.match(self.text, self.at)
        if word is None:
            self._no_value(first)
        text = word[0]
        if text in _WORDS:
            self.at = word.end()
            return _WORDS[text]
        number = _NUMBER.fullmatch(text)
        if number is None:
            self._no_number(text)
        if len(text) > LONGEST_NUMBER:
            self.broken(self.at, "The number is too long.", "Write it with fewer digits.")
        value = float(text) if number[1] or number[2] else int(text)
        if value in (float("inf"), float("-inf")):
            self.broken(self.at, "The number is too large.", "Numbers end at about 1.8e308.")
        self.at = word.end()
        return value

    def _no_number(self, text: str) -> NoReturn:
        what = f"{shown(text[:40])} is not a value: it has no quotes, and is not a number."
        right = f"Write it in double quotes: {shown(text[:40])}."
        if text in _MEANT:
            what = f"{text} is not a word of JSON."
            right = f"Write {_MEANT[text]}, in small letters."
        elif re.fullmatch(r"[+-]?(NaN|nan|[Ii]nf(inity)?)", text):
            what, right = f"JSON has no {text}.", "Leave the key out, or write a number."
        elif re.match(r"[+-]?\.?[0-9]", text):
            what = f"{shown(text[:40])} is not how JSON writes a number."
            right = "Numbers are written 1, -1, 0.5 or 1e-3; sizes with a unit go in double quotes."
        self.broken(self.at, what, right)

    def _no_value(self, first: str) -> NoReturn:
        if first == "'":
            self.broken(
                self.at,
                "A single quote; strings in JSON have double quotes.",
                "Write \"...\" and not '...'.",
            )
        what = f"A value is expected here, and there is {self.here()}."
        right = "A value is a text in double quotes, a number, true, false, null, [...] or {...}."
        self.broken(self.at, what, right)
