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


class HarmlessStream:
    """The same of bytes that come in blocks: shown at once, but for a letter of which a part is missing.

    A carriage return begins a line, as a bar of progress would write over the one before.
    """

    def __init__(self) -> None:
        self._part = b""
        self._returned = False  # the line break behind it is the same one

    def shown(self, block: bytes) -> str:
        """An empty block is the end."""
        whole = self._part + block
        cut = len(whole) - _unfinished(whole) if block else len(whole)
        self._part = whole[cut:]
        text = whole[:cut].decode(errors="replace")
        if not text:
            return ""
        if self._returned:
            text = text.removeprefix("\n")
        self._returned = whole[:cut].endswith(b"\r")
        return harmless(text.replace("\r\n", "\n").replace("\r", "\n"))


def _unfinished(block: bytes) -> int:
    """How many bytes at the end may begin a letter of UTF-8 that is longer."""
    for back in range(1, min(3, len(block)) + 1):
        byte = block[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def plain(text: str) -> str:
    """On one line, with "?" for each sign that moves a terminal's cursor or commands it."""
    return "".join(map(_shown, text))


def _shown(sign: str) -> str:
    return sign if sign.isprintable() else _INSTEAD.get(sign, "?")


def counted(number: int, noun: str, more: str = "") -> str:
    """ "1 GPU", "2 GPUs", "0 GPUs"; `more` is the noun of several where that is not made by an s."""
    return f"{number} {noun if number == 1 else more or f'{noun}s'}"


def often(number: int) -> str:
    """ "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def listed(items: tuple[str, ...], most: int = 20) -> str:
    """ "1, 2 and 3 more": the first ones of many."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return f"{', '.join(items[:most])}{more}"
