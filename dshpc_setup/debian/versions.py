"""Versions of packages compared as Debian's policy has it (5.6.12, and deb-version(7)). Pure."""

from __future__ import annotations

import functools
import re
from typing import Literal

_PART = re.compile(r"([^0-9]*)([0-9]*)")
_END = ((0,), 0)

Relation = Literal["<<", "<=", "=", ">=", ">>"]
_Part = tuple[tuple[tuple[int, ...], int], ...]


@functools.cache
def key(version: str) -> tuple[int, _Part, _Part]:
    """What versions are sorted by: of equal ones it is the same ("1.0" and "0:1.0-0")."""
    epoch, colon, rest = version.strip().partition(":")
    if not colon:
        epoch, rest = "0", epoch
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return int(epoch) if epoch.isascii() and epoch.isdigit() else 0, _key(upstream), _key(revision)


def _key(part: str) -> _Part:
    """Letters and number in turn, the first of which are always there; the end comes last."""
    found = [
        (tuple(map(_order, letters)) + (0,), int(number or "0"))
        for letters, number in _PART.findall(part)
        if letters or number
    ]
    return (*(found or [_END]), _END)


def _order(letter: str) -> int:
    """ "~" is before the end of the text, letters before all else."""
    if letter == "~":
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256


def holds(version: str, relation: Relation, wanted: str) -> bool:
    """Whether `version relation wanted` is true."""
    ours, theirs = key(version), key(wanted)
    match relation:
        case "<<":
            return ours < theirs
        case "<=":
            return ours <= theirs
        case "=":
            return ours == theirs
        case ">=":
            return ours >= theirs
        case ">>":
            return ours > theirs
