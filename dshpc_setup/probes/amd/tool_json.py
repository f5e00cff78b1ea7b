"""JSON as vendors' tools print it: with warnings before it, in several pieces, with texts for numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MOST = 4 << 20
_START = re.compile(r"\{\s*[\"}]|\[\s*[{\]]")
_NOTHING = frozenset(("", "n/a", "na", "none", "null", "unknown", "not supported", "unsupported"))
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class Pieces:
    """The JSON values in a text, in order; `whole` is False where one is broken or cut off."""

    values: tuple[Any, ...]
    whole: bool


def pieces(text: str) -> Pieces:
    """Never raises; what stands between the values is passed over."""
    if len(text) > _MOST:
        return Pieces((), False)
    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = 0
    while (start := _START.search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            return Pieces(tuple(found), False)
        found.append(value)
    return Pieces(tuple(found), True)


def records(values: tuple[Any, ...]) -> Iterator[dict[Any, Any]]:
    """The objects: bare ones, and those in lists."""
    for value in values:
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, dict):
                yield item


def said(value: object) -> str | None:
    """A text that says something: not "N/A", not an error's object."""
    if not isinstance(value, str):
        return None
    text = " ".join(value[: _LONGEST_TEXT * 4].split())[:_LONGEST_TEXT]
    return None if text.lower() in _NOTHING or not text.isprintable() else text


def name(value: object) -> str | None:
    """The same, where it is more than a number: a card without a name is called by its ids."""
    text = said(value)
    nameless = r"(?:(?:AMD|ATI|Graphics)\s+)*(?:Device\s*)?(?:0x)?[0-9a-fA-F]{0,8}"
    return None if text is None or re.fullmatch(nameless, text, re.IGNORECASE) else text


def number(value: object) -> int | None:
    """A whole number of 0 or more: 5, "5", "0x5"."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 <= value < 1 << 64 else None
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(r"[0-9]{1,19}", text):
        return int(text)
    return int(text, 16) if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", text) else None


def hexadecimal(value: object) -> int | None:
    """A number that is written in hexadecimal digits, with or without 0x before them."""
    text = value.strip().lower().removeprefix("0x") if isinstance(value, str) else ""
    return int(text, 16) if re.fullmatch(r"[0-9a-f]{1,16}", text) else None
