"""Texts that are written otherwise, in base64 or with percent signs: what is secret in them is secret."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import unquote

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{8,65536}={0,2}(?![A-Za-z0-9+/_=-])")
_PERCENT = re.compile(r"(?<![^\s\"'<>=])[^\s\"'<>=%]{0,2000}%[0-9A-Fa-f]{2}[^\s\"'<>]{0,4000}")


def replaced(text: str, replace: Callable[[str, str], str | None]) -> str:
    """The text with what `replace` gives for (as written, as read); None leaves it."""

    def by(read: Callable[[str], str | None]) -> Callable[[re.Match[str]], str]:
        def one(found: re.Match[str]) -> str:
            plain = read(found[0])
            told = None if plain is None or plain == found[0] else replace(found[0], plain)
            return found[0] if told is None else told

        return one

    if "%" in text:
        text = _PERCENT.sub(by(unquote), text)
    return _BASE64.sub(by(from_base64), text)


def from_base64(text: str) -> str | None:
    """What it says, if that is a text that can be read."""
    bare = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        data = base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
        found = data.decode()
    except (binascii.Error, ValueError):
        return None
    return found if found.isascii() and found.strip().isprintable() else None
