"""How full the disks are that a cluster lives on: the engine's, the project's, the work folder's, /tmp."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.observed.model import Disk

_ASK_S = 3.0  # a network file system whose server is gone never answers
# "Filesystem 1024-blocks Used Available Capacity Mounted on", as POSIX has it for `df -P`
_ROW = re.compile(r".*?\s(\d+)\s+(\d+)\s+(-?\d+)\s+(?:\d+%|-)\s+/.*")


def disks(
    machine: Machine, facts: HostFacts, project: Path | None, work: str | None = None
) -> tuple[Disk, ...]:
    """Those that are on this machine and answer; `df` is asked, since it can be given up. `work`: the work
    folder, where it lies outside the project."""
    wanted = _places(facts, project, work).items()
    places = {what: path for what, path in wanted if machine.exists(path)}
    paths = tuple(places.values())
    rooms = _ask(machine, paths, "-Pk")
    inodes = _ask(machine, paths, "-Pi") if facts.platform.kind != "macos" else {}
    found = []
    for what, path in places.items():
        if path not in rooms:
            continue
        size_kib, free_kib = rooms[path]
        # A file system without a fixed number of inodes says that it has 0 of them
        all_inodes, free = inodes.get(path, (0, 0))
        free_inodes = free if all_inodes > 0 else None
        found.append(Disk(what, path, free_kib >> 10, size_kib >> 10, free_inodes))
    return tuple(found)


def _places(facts: HostFacts, project: Path | None, work: str | None) -> Mapping[str, str]:
    engine = facts.engine
    here = engine.state == "present" and engine.kind not in ("desktop", "remote")
    places = {
        "engine": engine.root_dir if here else None,
        "project": str(project) if project else None,
        "work": work,
        "tmp": "/tmp",
    }
    return {what: path for what, path in places.items() if path}


def _ask(machine: Machine, paths: Sequence[str], option: str) -> dict[str, tuple[int, int]]:
    """Path -> size and what is free, in the units of the option, of those that answer.

    All at once; where one of them keeps the others from it, each by itself.
    """
    if not paths:
        return {}
    asked = machine.run(["df", option, *paths], deadline_s=_ASK_S, env={"LC_ALL": "C"})
    found = parse(asked.stdout) if asked.ok else ()
    if len(found) == len(paths):
        return dict(zip(paths, found, strict=True))
    if len(paths) == 1:
        return {}
    return {key: room for path in paths for key, room in _ask(machine, [path], option).items()}


def parse(text: str) -> tuple[tuple[int, int], ...]:
    """Size and what is free to users (never below 0) of each file system in `df -P`'s answer, in its
    order; nothing where a line of it cannot be read."""
    rows = [_ROW.fullmatch(line) for line in text.splitlines()[1:]]
    if not all(rows):
        return ()
    return tuple((int(row[1]), max(0, int(row[3]))) for row in rows if row)
