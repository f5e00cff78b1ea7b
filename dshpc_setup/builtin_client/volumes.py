"""Volumes of the built-in engine: folders that belong to a container's root, in the project's folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dshpc_setup.builtin import trees
from dshpc_setup.builtin.ids import Ids, become_root
from dshpc_setup.builtin_client.failing import refused
from dshpc_setup.builtin_client.store import Store, Volume
from dshpc_setup.files import atomic
from dshpc_setup.machine import Machine, Say

_MADE_S = 20.0


def ensure(
    machine: Machine, store: Store, ids: Ids, name: str, folder: Path, labels: Mapping[str, str]
) -> Volume:
    """The volume of that name, made in `folder` where there is none."""
    found: Volume | None = store.find("volume", name)
    if found is not None and os.path.isdir(found.path):
        if found.ids.way != ids.way:
            raise refused(f"the volume {name} was made as {found.ids.way}, and this is {ids.way}")
        return found
    path = folder / "volumes" / name
    if found is not None and found.ids.way == ids.way and path.is_dir():  # its project was moved
        moved = replace(found, path=str(path), labels=labels)
        store.put("volume", name, moved)
        return moved
    first = not path.parent.is_dir()
    atomic.make_folder(path.parent, mode=0o700)
    if first:
        trees.need_owners(machine, ids, path.parent)
    _make(machine, ids, path)
    made = Volume(name, str(path), ids, labels)
    store.put("volume", name, made)
    return made


def _make(machine: Machine, ids: Ids, path: Path) -> None:
    def question(say: Say) -> None:
        become_root(machine, ids)
        os.makedirs(path, 0o755, exist_ok=True)
        os.chmod(path, 0o755)
        os.chown(path, 0, 0)
        say("made")

    ended = machine.apart({"volume": question}, deadline_s=_MADE_S)["volume"]
    if "made" not in ended.items:
        raise refused(f"the folder {path} could not be made: {ended.detail or ended.state}")
