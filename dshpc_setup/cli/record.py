"""What a recording holds, on the screen."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from dshpc_setup.record.recorder import Recorded
from dshpc_setup.terminal.amounts import size
from dshpc_setup.terminal.sanitize import counted

_MOST_NAMED = 8


def lines(done: Recorded) -> list[str]:
    """What was captured and replaced, what was not to be had, and what to do with it."""
    total = sum(done.files.values())
    said = [f"Recorded in {done.folder}: {size(total)}"]
    width = max(map(len, done.files))
    said += [f"  {name:<{width}}  {size(count)}" for name, count in done.files.items()]
    said.append(f"Captured  {_listed(done.captured)}")
    said.append(f"Replaced  {_listed(done.scrubbed) or 'nothing: there was no name or number'}")
    for title, items in (("Denied", done.denied), ("No answer", done.silent)):
        if items:
            more = f", and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
            said.append(f"{title:<9} {', '.join(items[:_MOST_NAMED])}{more}")
    if done.differs:
        said.append(f"It does not replay all facts as they were: {', '.join(done.differs)}")
    said.append(f"Replay it: dshpc detect --machine {shlex.quote(done.folder)}")
    first = os.path.join(done.folder, "root.txtar")
    said.append(f"Look through it before you send it: {first} and the files beside it.")
    return said


def _several(what: str, count: int) -> str:
    """One UUID, two IPv4 addresses."""
    if count == 1:
        return f"1 {what}"
    if what.endswith("y"):
        return f"{count} {what[:-1]}ies"
    return counted(count, what, f"{what}es" if what.endswith("s") else "")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(_several(what, count) for what, count in counts.items() if count)
