"""Which checks `--only` and `--skip` name: sections, ids, globs of both."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from dshpc_setup.diagnose.model import SECTIONS, Check
from dshpc_setup.errors import DshpcError, usage_error

_DIGITS = 3  # of an id
_MOST_NEAR = 3
_BEGUN = re.compile(r"(?:DSH-?)?([A-Z]{2})-?([0-9]{0,9})")
_SHORT = re.compile(r"(?:DSH-?)?([A-Z]{2})-?([0-9]{1,3})")


def chosen(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> tuple[Check, ...]:
    """The checks that are asked for, in their order; all where nothing is named.

    Each word may be a list with commas. Raises DshpcError (64) for one that names no check, and
    where no check is left.
    """
    wanted = _named(checks, "--only", only) if only else {check.id for check in checks}
    left_out = _named(checks, "--skip", skip)
    left = tuple(check for check in checks if check.id in wanted - left_out)
    if not left:
        those = "that --only names" if only else "there are"
        raise usage_error("No check is left.", f"--skip leaves out all {those}.")
    return left


def full_id(word: str) -> str:
    """ "nv-13" as "DSH-NV-013"; what has no such form only in capitals."""
    short = _SHORT.fullmatch(word.strip().upper())
    return f"DSH-{short[1]}-{short[2]:0>3}" if short else word.strip().upper()


def nearest(word: str, ids: Sequence[str]) -> str | None:
    """Of a whole id the one with the nearest number among its like, of a begun one those that begin so.

    Of another word the id that looks most like it; None where none does.
    """
    begun = _BEGUN.fullmatch(word.strip().upper())
    there = [item for item in ids if begun and item.startswith(f"DSH-{begun[1]}-")]
    if begun is None or not there:
        return next(iter(difflib.get_close_matches(full_id(word), ids, 1)), None)
    digits = begun[2]
    so = [item for item in there if item.removeprefix(f"DSH-{begun[1]}-").startswith(digits)]
    if so and len(digits) < _DIGITS:
        return " or ".join(so[:_MOST_NEAR])
    return min(there, key=lambda item: abs(int(item[-_DIGITS:]) - int(digits)))


def _unknown(word: str, ids: Sequence[str]) -> DshpcError:
    """That there is no such check and no such section, with the nearest."""
    section = next(iter(difflib.get_close_matches(word.strip().lower(), SECTIONS, 1)), None)
    near = section or nearest(word, ids)
    return usage_error(
        f"There is no check and no section {word!r}.",
        f"Did you mean {near}?" if near else f"The sections are: {', '.join(SECTIONS)}.",
        "See them all: dshpc doctor --list-checks",
    )


def _named(checks: Sequence[Check], option: str, words: Sequence[str]) -> set[str]:
    """The ids that the words of an option name."""
    found: set[str] = set()
    for word in (part.strip() for text in words for part in text.split(",")):
        if not word:
            raise usage_error(
                f"{option} has an empty name.",
                "",
                f"Name sections, ids or globs: dshpc doctor {option} 'gpu,DSH-NV-*'",
            )
        of_word = {check.id for check in checks if _is_named(check, word)}
        if not of_word:
            raise _unknown(word, [check.id for check in checks])
        found |= of_word
    return found


def _is_named(check: Check, word: str) -> bool:
    return (
        check.section == word.lower()
        or check.id == full_id(word)
        or fnmatchcase(check.id, word.upper())
        or fnmatchcase(check.section, word.lower())
    )
