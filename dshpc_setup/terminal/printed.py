"""What people and machines wrote, as a terminal may be given it. It imports nothing: jobs load it."""

from __future__ import annotations

# Blanks of other widths, and what joins signs to one: terminals obey none of them
_INSTEAD = {**dict.fromkeys("\xa0\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))), " "),
            "\u200c": "", "\u200d": ""}  # fmt: skip


def harmless(text: str) -> str:
    """The same with its lines and tabs: C0, DEL, C1 and what turns the direction of letters become "?"."""
    if text.isprintable():
        return text
    whole = text.replace("\r\n", "\n")
    return "".join(sign if sign in "\n\t" else _shown(sign) for sign in whole)


def plain(text: str) -> str:
    """On one line, with "?" for each sign that moves a terminal's cursor or commands it."""
    return "".join(map(_shown, text))


def _shown(sign: str) -> str:
    return sign if sign.isprintable() else _INSTEAD.get(sign, "?")
