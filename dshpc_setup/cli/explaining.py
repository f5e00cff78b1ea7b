"""`dshpc explain`: the page of one finding, by its id or by words that stand in it, or the list of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dshpc_setup import findings_pages
from dshpc_setup.cli import print_json, put
from dshpc_setup.cli.chosen import full_id, nearest
from dshpc_setup.cli.markdown import as_text
from dshpc_setup.cli.terminal import Ink, ink
from dshpc_setup.diagnose import catalogue
from dshpc_setup.diagnose.model import Check
from dshpc_setup.errors import DshpcError, Exit, usage_error
from dshpc_setup.findings_pages import Rank

SCHEMA = "dshpc.explain/1"
_MOST = 15  # others that are named beside what was found


@dataclass(frozen=True)
class _Found:
    """The page that is meant, where it is one, and the others that have the words."""

    page: Check | None
    others: tuple[Check, ...]
    searched: bool = True  # by words; else these are all that there are


def explain(words: Sequence[str], *, json: bool = False) -> int:
    """Print it; raises DshpcError (64) where no id and no page is meant."""
    found = _found(" ".join(words), catalogue())
    if json:
        print_json(_as_json(found))
    else:
        put(_as_text(found))
    return Exit.OK


def _found(said: str, checks: Sequence[Check]) -> _Found:
    if not said.strip():
        return _Found(None, tuple(checks), searched=False)
    by_id = {check.id: check for check in checks}
    identity = full_id(said)
    if identity in by_id:
        return _Found(by_id[identity], ())
    found = findings_pages.search(said, by_id)
    if not found:
        raise _nothing(said, list(by_id))
    best = [identity for identity, rank in found if rank == found[0][1]]
    one = len(best) == 1 and (found[0][1] < Rank.WORDS or len(found) == 1)
    page = by_id[best[0]] if one else None
    return _Found(page, tuple(by_id[each] for each, _ in found if by_id[each] is not page))


def _nothing(said: str, ids: Sequence[str]) -> DshpcError:
    near = nearest(said, ids)
    return usage_error(
        f"No finding has the id {said!r}, and no page has these words.",
        f"Did you mean {near}?" if near else "",
        "See them all: dshpc explain",
        "Or give fewer words, such as a part of the error message: dshpc explain out of memory",
    )


def _as_json(found: _Found) -> dict[str, Any]:
    """The `dshpc.explain/1` object; without `id` where words or nothing name no single page."""
    page = found.page
    mine = {"id": page.id, "title": page.fault_title, "text": _page(page, Ink())} if page else {}
    others = [{"id": check.id, "title": check.fault_title} for check in found.others]
    return {"schema": SCHEMA, "exit_code": int(Exit.OK), **mine, "others": others}


def _as_text(found: _Found) -> str:
    shown, left = found.others, 0
    if len(found.others) > _MOST and found.searched:
        shown, left = found.others[:_MOST], len(found.others) - _MOST
    said = "".join(f"{check.id}  {check.fault_title}\n" for check in shown)
    if found.page is not None:
        said = _page(found.page, ink()) + (f"\nSee also:\n{said}" if said else "")
    return said + (f"... and {left} more: say more words\n" if left else "")


def _page(check: Check, colours: Ink) -> str:
    return "\n".join([*as_text(findings_pages.page(check.id), colours), ""])
