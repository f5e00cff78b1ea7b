"""What the nodes of the cluster have, as each has left it in the state volume at its start.

Jobs are submitted on the controller: what it says of GPU names and of what fits where is of all nodes.
A table that slurmctld's and the clients' Lua reads lies beside that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from dshpc_setup.container import state_volume
from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import open_lock, read_text, replace_text
from dshpc_setup.jobs.allocated_gpus import PLACES_FILE
from dshpc_setup.jobs.gpu_variables import TABLE
from dshpc_setup.jobs.offer import NODES, Offer, from_json, owner_name
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import Paths

_GPUS = "gpus.lua"
_NAME = re.compile(r"[\w.+-]+", re.ASCII)
_ASK_S = 10.0
_WRITTEN_S = 20.0  # slurmctld writes its nodes every five seconds at most, where some have changed
_POLL_S = 0.2


def write(paths: Paths, offer: Offer) -> None:
    """What this node offers now, where its GPUs are, and the table of all."""
    _put(paths, offer, read_text(paths.at(TABLE)) or "")


def _put(paths: Paths, offer: Offer, places: str) -> None:
    folder = paths.at(f"{NODES}/{offer.node}")
    os.makedirs(folder, exist_ok=True)
    with _locked(paths):
        replace_text(f"{folder}/offer.json", _text(offer), sync=False)
        replace_text(f"{folder}/{PLACES_FILE}", places, sync=False)
        _tabulate(paths)


def write_changed(paths: Paths, offer: Offer, places: str) -> bool:
    """The same of another node, where it is not written yet; whether it was."""
    if not _NAME.fullmatch(offer.node):
        return False
    folder = paths.at(f"{NODES}/{offer.node}")
    there = (read_text(f"{folder}/offer.json"), read_text(f"{folder}/{PLACES_FILE}"))
    if there == (_text(offer), places):
        return False
    _put(paths, offer, places)
    return True


def _text(offer: Offer) -> str:
    return json.dumps(offer.to_json()) + "\n"


def forget(paths: Paths, node: str) -> None:
    """The node is none of the cluster's any more."""
    if not _NAME.fullmatch(node):
        return
    with _locked(paths):
        shutil.rmtree(paths.at(f"{NODES}/{node}"), ignore_errors=True)
        _tabulate(paths)


def forget_all(paths: Paths) -> None:
    """A cluster of one node has none of these: what others have left is offered to no job."""
    shutil.rmtree(paths.at(NODES), ignore_errors=True)


def wait_written(machine: Machine, paths: Paths, node: str) -> None:
    """Until slurmctld's state has a node no more that was deleted: a slurmctld that is killed before would
    know it again. Raises DshpcError where that takes too long."""
    folder = state_volume.saved_in(paths, read_text(paths.at("/etc/slurm/slurm.conf")) or "")
    until = time.monotonic() + _WRITTEN_S
    while _is_saved(f"{folder}/node_state", node):
        if time.monotonic() >= until:
            raise DshpcError(
                f"Node {node} has left the cluster, but slurmctld has not written that down.",
                f"{folder}/node_state still has it after {_WRITTEN_S:.0f} s: if slurmctld is killed now, the "
                "node is back, without a machine.",
                (
                    Fix("See whether its disk is full", "dshpc exec --root -- df -h", step="look"),
                    Fix("And what slurmctld says", "dshpc logs", step="look"),
                    "The node comes back by a kill alone. Where it does, remove it again.",
                ),
            )
        # Refused, as there is no such node: but with its answer durable.c has slurmctld write all that has
        # changed at once, in place of five seconds later
        Slurm(machine).take_down(node, "dshpc:removed", deadline_s=_ASK_S)
        time.sleep(_POLL_S)


def _is_saved(path: str, node: str) -> bool:
    """Whether slurmctld's state of the nodes names this one: strings with their lengths before them. A file
    that is not there is about to be replaced."""
    name = node.encode() + b"\0"
    try:
        with open(path, "rb") as file:
            return len(name).to_bytes(4, "big") + name in file.read()
    except FileNotFoundError:
        return True


@contextlib.contextmanager
def _locked(paths: Paths) -> Iterator[None]:
    os.makedirs(paths.at(NODES), exist_ok=True)
    with open_lock(paths.at(f"{NODES}/.lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _tabulate(paths: Paths) -> None:
    replace_text(paths.at(f"{NODES}/{_GPUS}"), table(offers(paths), owner_name), sync=False)


def owned(paths: Paths) -> dict[str, int]:
    """The nodes that take the jobs of their owner alone, with his number."""
    try:
        return {it.node: it.owner for it in offers(paths) if it.owner is not None}
    except FileNotFoundError:  # a cluster of one node
        return {}


def name_owner(paths: Paths, uid: int) -> None:
    """The table of all nodes says the name of this user, who has become known, where a node is his."""
    if uid in owned(paths).values():
        with _locked(paths):
            _tabulate(paths)


def offers(paths: Paths) -> tuple[Offer, ...]:
    """Those of all nodes, in the order of their names; one that cannot be read is left out."""
    found = []
    for name in sorted(os.listdir(paths.at(NODES))):
        text = read_text(paths.at(f"{NODES}/{name}/offer.json")) if _NAME.fullmatch(name) else None
        with contextlib.suppress(ValueError):
            if text is not None:
                found.append(from_json(foreign.value(text)))
    return tuple(found)


def other_work(paths: Paths) -> dict[str, bool]:
    """The nodes whose work folder is another one, and whether workspaces are carried there."""
    try:
        return {each.node: each.carries for each in offers(paths) if each.own_work}
    except FileNotFoundError:  # a cluster of one node
        return {}


def table(offered: Sequence[Offer], user: Callable[[int], str] = str) -> str:
    """Names and types as templates/gpu_names.lua.j2 has them: of a type as many as one node has."""
    most: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    for offer in offered:
        most |= {kind: max(count, most.get(kind, 0)) for kind, count in _counts(offer).items()}
        for said, types in offer.aliases.items():
            known = names.setdefault(said, [])
            known += [it for it in types if it not in known]
    plain = {said: kinds for said, kinds in names.items() if said not in most}
    lines = [f"   [{_quoted(said)}] = {{ {_listed(kinds)} }}," for said, kinds in plain.items()]
    rows = [f"   {{ {_quoted(kind)}, {count} }}," for kind, count in most.items()]
    without = [
        f"   {{ {_quoted(each.node)}, {{ {_lua_counts(each)} }} }},"
        for each in offered
        if each.own_work
    ]
    owned = [
        f"   [{_quoted(each.node)}] = {{ {each.owner}, {_quoted(user(each.owner))} }},"
        for each in offered
        if each.owner is not None
    ]
    tables = (
        "return { names = {",
        *lines,
        "}, types = {",
        *rows,
        "}, other_work = {",
        *without,
        "}, owned = {",
        *owned,
        "}, work = " + _escaped(next((each.carried_work for each in offered if each.carries), "")),
        "}",
        "",
    )
    return "\n".join(tables)


def _counts(offer: Offer) -> Counter[str]:
    """GPUs of each of Slurm's types."""
    return Counter(gpu.slurm_type for gpu in offer.gpus)


def _lua_counts(offer: Offer) -> str:
    return ", ".join(f"[{_quoted(kind)}] = {count}" for kind, count in _counts(offer).items())


def _escaped(text: str) -> str:
    """A Lua string of any text: a path may hold anything."""
    return '"' + "".join(f"\\{byte:03d}" for byte in os.fsencode(text)) + '"'


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(map(_quoted, kinds))


def _quoted(text: str) -> str:
    """A Lua string: of words, with blanks between them; all else is left out of it."""
    return '"' + "".join(it for it in text if it == " " or _NAME.fullmatch(it)) + '"'
