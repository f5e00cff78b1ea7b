"""`dshpc explain`: the page of one finding, or the list of them."""

from __future__ import annotations

from dshpc_setup import findings_pages
from dshpc_setup.cli import put
from dshpc_setup.cli.chosen import full_id, unknown
from dshpc_setup.cli.markdown import as_text
from dshpc_setup.cli.terminal import ink
from dshpc_setup.diagnose import catalogue
from dshpc_setup.errors import Exit


def explain(word: str | None) -> int:
    """Print it; raises DshpcError (64) where there is no such id."""
    checks = catalogue()
    if word is None:
        put("".join(f"{check.id}  {check.fault_title}\n" for check in checks))
        return Exit.OK
    identity = full_id(word)
    ids = [check.id for check in checks]
    if identity not in ids:
        raise unknown(word, ids)
    put("\n".join([*as_text(findings_pages.page(identity), ink()), ""]))
    return Exit.OK
