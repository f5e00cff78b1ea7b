"""The pages of the findings: docs/findings/ID.md, in a checkout and in an installed wheel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path

from dshpc_setup import resources
from dshpc_setup.errors import DshpcError


def folder() -> Path:
    """Where they lie."""
    return resources.share() / "docs" / "findings"


def page(identity: str) -> str:
    """The page of one check, in Markdown; raises DshpcError where it cannot be read."""
    path = folder() / f"{identity}.md"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DshpcError(
            f"The page of {identity} cannot be read.",
            str(error),
            (
                "This installation is not complete: install dshpc-setup anew.",
                f"What the check says of this machine: dshpc doctor -v --only {identity}",
            ),
        ) from None


_SHORT = 2  # letters of a word that stands nearly everywhere


class Rank(IntEnum):
    """Where the words that were looked for stand; the best first."""

    TITLE = 0  # one after the other in the title
    TEXT = 1  # the same in the text
    WORDS = 2  # each of them somewhere


def search(words: str, ids: Iterable[str]) -> tuple[tuple[str, Rank], ...]:
    """The pages that have all the words, the best first, then as `ids` has them. Capitals do not count."""
    wanted = _plain(words).split()
    if not any(len(word) > _SHORT for word in wanted):
        return ()
    found = []
    for identity in ids:
        title, _, text = page(identity).partition("\n")
        rank = _rank(wanted, _plain(title), _plain(text))
        if rank is not None:
            found.append((identity, rank))
    return tuple(sorted(found, key=lambda one: one[1]))


def _rank(wanted: list[str], title: str, text: str) -> Rank | None:
    phrase = f" {' '.join(wanted)} "
    if phrase in title:
        return Rank.TITLE
    if phrase in text:
        return Rank.TEXT
    return Rank.WORDS if all(f" {word} " in title + text for word in wanted) else None


def _plain(text: str) -> str:
    """Its words alone, in lower case, with spaces around each."""
    return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} "
