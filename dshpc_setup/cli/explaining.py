"""`dshpc explain`: the page of a finding, by its id, by what a program said, or by words that stand in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup import pasted
from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.check_selection import full_id, nearest
from dshpc_setup.cli.markdown import as_text
from dshpc_setup.cli.terminal import Ink, ink
from dshpc_setup.diagnose import catalogue, findings_pages
from dshpc_setup.diagnose.findings_pages import Rank
from dshpc_setup.diagnose.model import Check
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.terminal.sanitize import plain

SCHEMA = "dshpc.explain/1"
_MOST = 15  # others that are named beside what was found
_MOST_READ = 1 << 20  # bytes of standard input
_A_WORD = 100  # letters: what is longer, or has lines, is a text and no attempt at an id


@dataclass(frozen=True)
class _Found:
    """The page that is meant, where it is one, what it can be besides, and the others that have the words."""

    page: Check | None
    others: tuple[Check, ...]
    searched: bool = True  # by words; else these are all that there are
    told_by: str | None = None  # the words of a message that are a sign of it
    besides: tuple[Check, ...] = ()
    harmless: str | None = None  # what doctor notes of the text, in which it sees no fault


def explain(words: Sequence[str], *, json: bool = False) -> int:
    """Print it; "-" reads the text from standard input. Raises DshpcError (64) where nothing is meant."""
    said = _standard_input() if list(words) == ["-"] else " ".join(words)
    found = _found(said, catalogue())
    if json:
        print_json(_as_json(found))
    else:
        put(_as_text(found))
    return Exit.OK


def _standard_input() -> str:
    """What is piped in, up to a limit."""
    return "" if sys.stdin is None else sys.stdin.buffer.read(_MOST_READ).decode(errors="replace")


def _found(said: str, checks: Sequence[Check]) -> _Found:
    if not said.strip():
        return _Found(None, tuple(checks), searched=False)
    by_id = {check.id: check for check in checks}
    identity = full_id(said)
    if identity in by_id:
        return _Found(by_id[identity], ())
    found = findings_pages.search(said, by_id)
    best = [identity for identity, rank in found if rank == found[0][1]]
    by_title = len(best) == 1 and found[0][1] is Rank.TITLE
    told = None if by_title else pasted.told(said)
    if told is not None:
        besides = tuple(by_id[each] for each in told.besides)
        shown = {told.finding, *told.besides}
        others = tuple(by_id[each] for each, _ in found if each not in shown)
        return _Found(by_id[told.finding], others, told_by=told.words, besides=besides)
    harmless = None if by_title else pasted.harmless(said)
    if harmless is not None:
        about = by_id[harmless.finding]
        others = tuple(by_id[each] for each, _ in found if each != about.id)
        return _Found(None, (about, *others), harmless=harmless.says)
    if not found:
        raise _nothing(said, list(by_id))
    one = len(best) == 1 and (found[0][1] < Rank.WORDS or len(found) == 1)
    page = by_id[best[0]] if one else None
    return _Found(page, tuple(by_id[each] for each, _ in found if by_id[each] is not page))


def _nothing(said: str, ids: Sequence[str]) -> DshpcError:
    all_of_them = "See them all: dshpc explain"
    if len(said) > _A_WORD or "\n" in said.strip():
        return usage_error(
            "No finding is known to explain this text.",
            "What is wrong on this machine: dshpc doctor",
            all_of_them,
        )
    near = nearest(said, ids)
    return usage_error(
        f"No finding has the id {said!r}, and no page has these words.",
        f"Did you mean {near}?" if near else "",
        all_of_them,
        "Or give fewer words, such as a part of the error message: dshpc explain out of memory",
    )


def _as_json(found: _Found) -> dict[str, Any]:
    """The `dshpc.explain/1` object; without `id` where words or nothing name no single page."""
    page = found.page
    mine = {"id": page.id, "title": page.fault_title, "text": _page(page, Ink())} if page else {}
    told = {"told_by": found.told_by} if found.told_by is not None else {}
    noted = {"harmless": found.harmless} if found.harmless is not None else {}
    others = [
        {"id": each.id, "title": each.fault_title} for each in (*found.besides, *found.others)
    ]
    return {"schema": SCHEMA, "exit_code": int(Exit.OK), **mine, **told, **noted, "others": others}


def _as_text(found: _Found) -> str:
    shown, left = found.others, 0
    if len(found.others) > _MOST and found.searched:
        shown, left = found.others[:_MOST], len(found.others) - _MOST
    said = _listed(shown)
    if found.page is not None:
        said = _page(found.page, ink()) + _told(found) + (f"\nSee also:\n{said}" if said else "")
    elif found.harmless is not None:
        said = f"No fault: doctor would note this. {plain(found.harmless)}\n\nSee also:\n{said}"
    return said + (f"... and {left} more: say more words\n" if left else "")


def _told(found: _Found) -> str:
    """By which words it was found, and what else says them."""
    if found.told_by is None:
        return ""
    besides = f"It can also be:\n{_listed(found.besides)}" if found.besides else ""
    return f"\nFound by these words: {plain(found.told_by)}\n{besides}"


def _listed(checks: Sequence[Check]) -> str:
    return "".join(f"{check.id}  {check.fault_title}\n" for check in checks)


def _page(check: Check, colours: Ink) -> str:
    return "\n".join([*as_text(findings_pages.page(check.id), colours), ""])
