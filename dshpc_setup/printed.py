"""What people and machines wrote, as a terminal may be given it. It imports nothing: jobs load it."""

from __future__ import annotations


def harmless(text: str) -> str:
    """The same with its lines and tabs: C0, DEL, C1 and what turns the direction of letters become "?"."""
    if text.isprintable():
        return text
    whole = text.replace("\r\n", "\n")
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "?" for sign in whole)


def plain(text: str) -> str:
    """On one line, with "?" for each sign that moves a terminal's cursor or commands it."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
