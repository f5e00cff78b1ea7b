"""The made-up GPUs of a plan in a room: their device nodes."""

from __future__ import annotations

import os
import stat

from dshpc_setup.plan import ClusterPlan
from tests.integration.bench.room import Room

_MAJOR = 240  # one of those for local use: nobody has a driver for it


def add_nodes(room: Room, plan: ClusterPlan) -> None:
    """The device files that the plan names, each a node with a number of its own."""
    links = {link.path: link.target for link in plan.device_links}
    named = [path for line in plan.gres for path in line.files]
    for number, path in enumerate(dict.fromkeys(links.get(path, path) for path in named)):
        node = room.path(path)
        node.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(_MAJOR, number))
    for path, target in links.items():
        link = room.path(path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
