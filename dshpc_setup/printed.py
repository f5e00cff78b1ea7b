"""What people and machines wrote, as a terminal may be given it. It imports nothing: jobs load it."""

from __future__ import annotations


def plain(text: str) -> str:
    """On one line, with "?" for each sign that moves a terminal's cursor or commands it."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
