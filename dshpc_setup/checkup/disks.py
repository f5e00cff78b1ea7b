"""How full the disks are that a cluster lives on: the engine's, the project's, /tmp."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.observed import Disk

_ASK_S = 3.0  # a network file system whose server is gone never answers
# "Filesystem 1024-blocks Used Available Capacity Mounted on", as POSIX has it for `df -P`
_ROW = re.compile(r".*?\s(\d+)\s+(\d+)\s+(-?\d+)\s+(?:\d+%|-)\s+/.*")


def disks(machine: Machine, facts: HostFacts, project: Path | None) -> tuple[Disk, ...]:
    """Those that are on this machine and answer; `df` is asked, since it can be given up."""
    places = {what: path for what, path in _places(facts, project).items() if machine.exists(path)}
    found = []
    for what, path in places.items():
        room = _ask(machine, path, "-Pk")
        if room is None:
            continue
        size_kib, free_kib = room
        inodes = _ask(machine, path, "-Pi") if facts.platform.kind != "macos" else None
        # A file system without a fixed number of inodes says that it has 0 of them
        free_inodes = inodes[1] if inodes is not None and inodes[0] > 0 else None
        found.append(Disk(what, path, free_kib >> 10, size_kib >> 10, free_inodes))
    return tuple(found)


def _places(facts: HostFacts, project: Path | None) -> Mapping[str, str]:
    engine = facts.engine
    here = engine.state == "present" and engine.kind not in ("desktop", "remote")
    places = {
        "engine": engine.root_dir if here else None,
        "project": str(project) if project else None,
        "tmp": "/tmp",
    }
    return {what: path for what, path in places.items() if path}


def _ask(machine: Machine, path: str, option: str) -> tuple[int, int] | None:
    """Size and what is free, in the units of the option; None where nobody says."""
    argv = ["df", option, path]
    asked = machine.run(argv, deadline_s=_ASK_S, env={"LC_ALL": "C"})
    return parse(asked.stdout) if asked.ok else None


def parse(text: str) -> tuple[int, int] | None:
    """Size and what is free to users of the one file system in `df -P`'s answer; never below 0."""
    lines = text.splitlines()
    row = _ROW.fullmatch(lines[1]) if len(lines) == 2 else None
    return (int(row[1]), max(0, int(row[3]))) if row else None
