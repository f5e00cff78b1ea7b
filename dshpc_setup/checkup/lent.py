"""Whether the folders of this machine that jobs are lent are still what they were lent as."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dshpc_setup.machine import Machine, Say
from dshpc_setup.observed.model import LentFolder, LentState
from dshpc_setup.settings import Settings
from dshpc_setup.settings.lent import COMPILERS, Toolkit, parse

_MOST_LINKS = 8


@dataclass(frozen=True)
class Lent:
    """For the field `lent` of `Observed`."""

    folders: tuple[LentFolder, ...] = ()


def look(machine: Machine, runtime: Mapping[str, Any], settings: Settings, say: Say) -> None:
    """Told again with each that is known: a network file system whose server is gone never answers.

    `runtime`: what jobs see of this machine, as the cluster was set up.
    """
    toolkits = tuple(map(parse, runtime.get("toolkits", ())))
    found = [
        *(LentFolder("home", each, "unknown") for each in runtime.get("homes", ())),
        *(LentFolder("mounts", each, "unknown") for each in runtime.get("mounts", ())),
        *(LentFolder("toolkit", each.place, "unknown") for each in toolkits),
    ]
    if runtime and settings.toolkit == "host" and not toolkits:
        found.append(LentFolder("toolkit", "", "gone"))
    of_place = {each.place: each for each in toolkits}
    say(Lent(tuple(found)))
    for at, folder in enumerate(found):
        if folder.setting == "toolkit" and folder.path:
            found[at] = replace(folder, state=_state(machine, of_place[folder.path]))
        elif folder.path:
            found[at] = replace(folder, state="good" if machine.exists(folder.path) else "gone")
        say(Lent(tuple(found)))


def _state(machine: Machine, it: Toolkit) -> LentState:
    if not machine.exists(it.source):
        return "gone"
    if not machine.exists(f"{it.source}/{COMPILERS[it.kind]}"):
        return "empty"
    return (
        "good" if it.place == it.source or _leads_to(machine, it.place, it.source) else "replaced"
    )


def _leads_to(machine: Machine, link: str, source: str) -> bool:
    at = link
    for _ in range(_MOST_LINKS):
        target = machine.readlink(at)
        if target is None or at == source:
            break
        at = os.path.normpath(os.path.join(os.path.dirname(at), target))
    return at == source
