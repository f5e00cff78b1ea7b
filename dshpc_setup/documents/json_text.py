"""A JSON text as a document: the value, the line of each part, and all that is wrong with the text."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from dshpc_setup.documents import document
from dshpc_setup.documents.document import Document
from dshpc_setup.documents.foreign import is_deeper
from dshpc_setup.documents.json_reader import MOST_DEPTH, Reader
from dshpc_setup.documents.json_scanner import HALF, LONGEST_NUMBER


def read(data: bytes) -> Document:
    """The document in a file's bytes; never raises."""
    right = "Such a file is a page or two: put data into a file of its own beside it."
    return document.read(data, parse, right)


def parse(text: str) -> Document:
    """The document in a text; never raises."""
    try:
        return Document(_right_one(text), find_lines=lambda: Reader(text).lines())
    except (ValueError, RecursionError):
        reader = Reader(text)
        value, problems, is_whole = reader.read()
        return Document(value, problems, is_whole, find_lines=reader.lines)


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
