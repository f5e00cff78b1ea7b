"""A method file's bytes as a value, with the line of each part; what is wrong with the text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from dshpc_setup.foreign import is_deeper
from dshpc_setup.methods.model import Problem
from dshpc_setup.methods.reader import MOST_DEPTH, Reader
from dshpc_setup.methods.scanner import HALF, LINE_END, LONGEST_NUMBER
from dshpc_setup.methods.shown import Path

MOST_BYTES = 256 * 1024


@dataclass(frozen=True)
class Document:
    """`value` is None where the text could not be read to its end (`is_whole` false)."""

    text: str
    value: Any
    problems: tuple[Problem, ...] = ()
    is_whole: bool = True

    def line(self, path: Path) -> int:
        """Where that part stands, or the nearest part around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    @cached_property
    def _lines(self) -> Mapping[Path, int]:
        """Looked up where something is wrong only."""
        return Reader(self.text).lines()


def read(data: bytes) -> Document:
    """The document in a file's bytes; never raises."""
    if len(data) > MOST_BYTES:
        return _unread(
            1,
            f"The file is larger than {MOST_BYTES // 1024} KiB.",
            "Such a file is a page or two: put data into a file of its own beside it.",
        )
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _unread(1, "The file is UTF-16.", "Save it as UTF-8.")
    try:
        return parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        line = 1 + len(LINE_END.findall(before))
        what = f"The byte 0x{data[error.start]:02x} is not UTF-8."
        return _unread(line, what, "Save the file as UTF-8.")


def _unread(line: int, what: str, right: str) -> Document:
    return Document("", None, (Problem("$", line, what, right),), is_whole=False)


def parse(text: str) -> Document:
    """The document in a text; never raises."""
    try:
        return Document(text, _right_one(text))
    except (ValueError, RecursionError):
        value, problems, is_whole = Reader(text).read()
        return Document(text, value, problems, is_whole)


def _right_one(text: str) -> Any:
    """The value of a text in which nothing is wrong, by Python's fast reader; else ValueError."""
    if "\\u" in text or not (text.isascii() or HALF.search(text) is None):
        raise ValueError("escapes are looked at one by one")
    value = json.loads(
        text, object_pairs_hook=_once, parse_constant=_not, parse_int=_int, parse_float=_float
    )
    if is_deeper(value, MOST_DEPTH):
        raise ValueError("too deep")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key twice")
    return found


def _not(name: str) -> NoReturn:
    raise ValueError(name)


def _int(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError("too long")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if len(text) > LONGEST_NUMBER or value in (float("inf"), float("-inf")):
        raise ValueError("too long or too large")
    return value
