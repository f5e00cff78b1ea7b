"""Pseudonyms: another name of the same form for each thing, the same one wherever it stands.

They are counted, not computed from what they stand for: an address has so few values that a hash of
it could be tried out.
"""

from __future__ import annotations

import ipaddress
import random
import string
from collections.abc import Callable
from typing import Literal

Kind = Literal[
    "uuid", "serial", "id", "host", "domain", "user", "uid", "ipv4", "ipv6", "mac", "engine",
    "context", "secret", "job", "folder", "volume", "word", "number",
]  # fmt: skip

WORDS: dict[Kind, str] = {
    "uuid": "UUID",
    "serial": "serial number",
    "id": "device id",
    "host": "host name",
    "domain": "domain",
    "user": "user name",
    "uid": "user number",
    "ipv4": "IPv4 address",
    "ipv6": "IPv6 address",
    "mac": "hardware address",
    "engine": "long id",
    "context": "Docker context",
    "secret": "password or token",
    "job": "job name",
    "folder": "folder",
    "volume": "name of a volume",
    "word": "unlisted word",
    "number": "unlisted number",
}


class Pseudonyms:
    """One recording's; what was `seen` is never used as a pseudonym of something else."""

    def __init__(self) -> None:
        self._given: dict[Kind, dict[str, str]] = {}
        self._taken: set[str] = set()
        self._made: set[str] = set()  # as `_bare` has them
        self._ids: set[int] = set()

    def extent(self) -> int:
        """Greater with each text that is `seen` and each name that is given."""
        return len(self._taken) + sum(map(len, self._given.values()))

    def seen(self, text: str) -> None:
        """This text stands in what is to be scrubbed, and must not in the result."""
        self._taken.add(text.lower())

    def of(self, kind: Kind, original: str) -> str:
        """The pseudonym of what `original` names, in its canonical form."""
        given = self._given.setdefault(kind, {})
        if original not in given:
            self.seen(original)
            number, attempt = len(given) + 1, 0
            made = _MAKERS[kind](original, number, attempt)
            while made.lower() in self._taken and attempt < 1000:
                attempt += 1
                made = _MAKERS[kind](original, number, attempt)
            self.seen(made)
            given[original] = made
            self._made.add(_bare(made))
            if kind == "id":
                self._ids.add(int(made))
        return given[original]

    def is_made(self, text: str) -> bool:
        """Whether it is a pseudonym, with whatever signs between its digits and in whatever case."""
        bare = _bare(text)
        if bare in self._made:
            return True
        try:
            return len(bare) >= 8 and (
                int(bare, 16) in self._ids or (bare.isdecimal() and int(bare) in self._ids)
            )
        except ValueError:
            return False

    def counts(self) -> dict[str, int]:
        """How many things of which kind were given another name."""
        return {WORDS[kind]: len(given) for kind, given in self._given.items() if given}


def _bare(text: str) -> str:
    text = text.lower().removeprefix("pod")
    for kind in ("gpu-", "mig-"):
        text = text.removeprefix(kind)
    return text.replace("-", "").replace("_", "").replace(":", "")


def _uuid(_original: str, number: int, attempt: int) -> str:
    # Begins so that those of one machine differ in their first digits, as real ones do.
    first = (number + (attempt << 16)) * 0x9E3779B1 & 0xFFFFFFFF
    return f"{first:08x}d5d54d5d8d5d{number:012x}"


def _shape(original: str, number: int, attempt: int) -> str:
    """Digits for digits, letters for letters; leading zeros and 0x stay, and no others are made."""
    dice = random.Random(f"{len(original)}/{number}/{attempt}")
    start = len(original) - len(original.lstrip("0"))
    if start and original[start : start + 1] in ("x", "X"):
        start += 1
    plain = {char for char in original[start:] if char.isalnum()}
    letters = "abcdef" if plain <= set(string.hexdigits) else string.ascii_lowercase
    made = [original[:start]]
    for char in original[start:]:
        if char.isdecimal() and char.isascii():
            made.append(dice.choice("123456789"))
        elif char.isascii() and char.isalpha():
            letter = dice.choice(letters)
            made.append(letter.upper() if char.isupper() else letter)
        else:
            made.append(char if char.isascii() else "x")
    return "".join(made)


def _base32(original: str, number: int, attempt: int) -> str:
    dice = random.Random(f"base32/{number}/{attempt}")
    letters = string.ascii_uppercase + "234567"
    return "".join(dice.choice(letters) if char.isalnum() else char for char in original)


def _engine(original: str, number: int, attempt: int) -> str:
    made = _base32 if ":" in original and original.isupper() else _shape
    return made(original, number, attempt)


def _id(original: str, number: int, attempt: int) -> str:
    """A number of as many bits, and of as many digits."""
    value = int(original)
    dice = random.Random(f"{value.bit_length()}/{number}/{attempt}")
    top = 1 << max(value.bit_length() - 1, 0)
    for _ in range(100):
        made = top | dice.getrandbits(max(value.bit_length() - 1, 1)) & (top - 1)
        if len(str(made)) == len(original):
            return str(made)
    return str(top)


def _ipv4(_original: str, number: int, attempt: int) -> str:
    return str(ipaddress.IPv4Address(0xC6120000 + (number + attempt * 251 - 1) % 0x1FFFF + 1))


def _ipv6(_original: str, number: int, attempt: int) -> str:
    return f"2001:db8:d5::{number + attempt * 0x101:x}"


def _mac(original: str, number: int, attempt: int) -> str:
    size = len(original) // 2
    low = number + (attempt << 16)
    return f"{0x02 << 8 * (size - 1) | low & (1 << 8 * (size - 1)) - 1:0{2 * size}x}"


def _uid(_original: str, number: int, attempt: int) -> str:
    return str(999 + number + attempt)


def _numbered(word: str) -> Callable[[str, int, int], str]:
    """Of one piece: for every parser it is a word, as what it stands for was."""

    def make(_original: str, number: int, attempt: int) -> str:
        return f"{word}{number + attempt}"

    return make


def _counted(word: str, behind: str = "") -> Callable[[str, int, int], str]:
    def make(_original: str, number: int, attempt: int) -> str:
        return f"{word}-{number + attempt}{behind}"

    return make


_MAKERS: dict[Kind, Callable[[str, int, int], str]] = {
    "uuid": _uuid,
    "serial": _shape,
    "id": _id,
    "host": _counted("host"),
    "domain": _counted("site", ".example"),
    "user": _counted("user"),
    "uid": _uid,
    "ipv4": _ipv4,
    "ipv6": _ipv6,
    "mac": _mac,
    "engine": _engine,
    "context": _counted("context"),
    "secret": _counted("removed"),
    "job": _counted("job"),
    "folder": _counted("/folder"),
    "volume": _counted("volume"),
    "word": _numbered("word"),
    "number": _numbered("number"),
}
