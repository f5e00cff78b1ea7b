"""A cluster of several machines: each node's own names and addresses, and what is told across.

Nodes on one machine share the state volume. What another machine has to know of this one travels by Slurm's
own means: a user with his job's credential, what a node offers as the text `Extra` of the node, which only
root may set.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import zlib
from typing import TYPE_CHECKING

from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import cannot_write, read_text, replace_text
from dshpc_setup.machine import addresses
from dshpc_setup.settings import ELSEWHERE
from dshpc_setup.slurm.client import Slurm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dshpc_setup.container.run import Run
    from dshpc_setup.jobs.allocated_gpus import Places
    from dshpc_setup.jobs.offer import Offer
    from dshpc_setup.machine import Machine
    from dshpc_setup.settings import Settings
    from dshpc_setup.slurm.paths import Paths

FAR = "far"  # a file in the folder of a node's offer: the node is on another machine
_MARK = "dshpc1:"
_EXTRA = re.compile(rf"\sExtra={_MARK}([\w+/=-]+)(?:\s|$)", re.ASCII)
_NODE = re.compile(r"NodeName=(\S+)")
_MOST_BYTES = 1 << 20
_ASK_S = 20.0


def own_address(settings: Settings) -> str:
    """Where Slurm listens here; raises DshpcError where that is no address of this machine.

    A node on another machine than the controller's may have another address than when it joined: it listens
    at the one from which it speaks to the controller.
    """
    listen = settings.listen
    found = addresses.of_interface(listen) if not re.fullmatch(r"[0-9.]+", listen) else listen
    if found is not None and addresses.is_here(found):
        return found
    if settings.place.is_joined:  # nobody else has to know it beforehand
        with contextlib.suppress(OSError):
            return addresses.towards(_controller(settings))
    what = "is no address of this machine" if found else "is no interface with an IPv4 address here"
    raise DshpcError(
        f"Slurm cannot listen at {listen}: it {what}.",
        "It is the setting listen: the others of the cluster reach this machine there.",
        (
            Fix("See which there are", "ip -4 -brief address", step="look"),
            Fix("Then name one", "configure-environment --listen ADDRESS"),
        ),
    )


def name_hosts(run: Run) -> None:
    """The names that Slurm's daemons listen and connect by lead to addresses that other machines reach."""
    _name_hosts(run.paths, run.settings)


def _name_hosts(paths: Paths, settings: Settings) -> bool:
    """Whether one of them led elsewhere."""
    wanted = {settings.node: own_address(settings)}
    if settings.place.is_joined:
        wanted[settings.prefix] = _controller(settings)
    return _lead(paths, wanted)


def lead_to_controller(paths: Paths, settings: Settings) -> bool:
    """The controller's name leads to it; whether it led elsewhere."""
    return _lead(paths, {settings.prefix: _controller(settings)})


def _controller(settings: Settings) -> str:
    """Its address, as it was told as this node joined; raises DshpcError where that cannot be read."""
    if settings.place.controller != ELSEWHERE:
        return settings.place.controller
    raise DshpcError(
        "This node does not find where the controller of its cluster is.",
        "That is in config/live.json, which cannot be read, or is damaged.",
        (Fix("Have it written again", "configure-environment"),),
    )


def _lead(paths: Paths, wanted: Mapping[str, str]) -> bool:
    path = paths.at("/etc/hosts")
    before = read_text(path) or ""
    text = hosts_with(before, wanted)
    if text == before:
        return False
    try:
        with open(path, "w", encoding="utf-8") as file:  # mounted: nothing is renamed over it
            file.write(text)
    except OSError as error:
        raise cannot_write(path, error) from None
    return True


def listen_anew(machine: Machine, paths: Paths, settings: Settings) -> None:
    """slurmd at the address that this machine has now, where that is another one; its jobs go on. Raises
    DshpcError where it has none that leads to the controller."""
    if _name_hosts(paths, settings):
        machine.run(["s6-svc", "-r", f"{paths.services}/slurmd"], deadline_s=_ASK_S)


def hosts_with(text: str, wanted: Mapping[str, str]) -> str:
    """An /etc/hosts in which these names have these addresses and no others. Pure."""
    lines = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not wanted.keys() & set(words[1:]):
            lines.append(line)
        elif others := [word for word in words[1:] if word not in wanted]:
            lines.append(" ".join([words[0], *others]))
    lines += [f"{address} {name}" for name, address in wanted.items()]
    return "".join(f"{line}\n" for line in lines)


# What a node offers


def packed(text: str) -> str:
    """As the text `Extra` of a node: one word."""
    return _MARK + base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(line: str) -> str | None:
    """What `packed` has put into a line of `scontrol -o show node`; None where there is nothing."""
    found = _EXTRA.search(line)
    if found is None:
        return None
    try:
        opened = zlib.decompressobj()
        text = opened.decompress(base64.b64decode(found[1], validate=True), _MOST_BYTES)
        return text.decode() if opened.eof else None
    except (binascii.Error, ValueError, zlib.error):
        return None


def told(line: str) -> tuple[Places, bool] | None:
    """Of a line of `scontrol -o show node` the GPUs of a node on another machine, and whether they are made
    up; None of a node that has told nothing."""
    from dshpc_setup.jobs.allocated_gpus import Places, parse_table

    found = _offered(line)
    if found is None:
        return None
    offer, table = found
    return Places(parse_table(table.splitlines()), offer.gpus, offer.node), offer.simulated


def _offered(line: str) -> tuple[Offer, str] | None:
    """What it offers, and the table of its GPUs' places."""
    from dshpc_setup.jobs.offer import from_json

    name, text = _NODE.match(line), unpacked(line)
    if name is None or text is None:
        return None
    first, _, table = text.partition("\n")
    try:
        offer = from_json(foreign.value(first))
    except ValueError:
        return None
    return (offer, table) if offer.node == name[1] else None


def tell_controller(run: Run) -> None:
    """What this node offers, and where its GPUs are, for who submits jobs on the controller's machine."""
    from dshpc_setup.jobs.gpu_variables import TABLE
    from dshpc_setup.jobs.offer import NODES

    node = run.settings.node
    text = read_text(run.paths.at(f"{NODES}/{node}/offer.json"))
    if text is None:
        return
    places = read_text(run.paths.at(TABLE)) or ""
    whole = packed(f"{text.strip()}\n{places}")
    done = Slurm(run.machine).describe_node(node, whole, deadline_s=_ASK_S)
    if not done.ok:
        run.status.note(
            f"The controller could not be told what this node offers: {done.text}. Jobs that name no node "
            "are chosen without it; the next start tells it again."
        )


def collect(machine: Machine, paths: Paths) -> tuple[str, ...]:
    """What the nodes on other machines have told, written where offers are read; their names.

    One that Slurm knows no longer is forgotten.
    """
    from dshpc_setup.container import nodes
    from dshpc_setup.jobs.offer import NODES

    asked = Slurm(machine).run("scontrol", "-o", "show", "node", deadline_s=_ASK_S)
    if not asked.ok:
        return ()
    known, names = set(), list[str]()
    for line in asked.stdout.splitlines():
        name = _NODE.match(line)
        if name is None:
            continue
        known.add(name[1])
        if (found := _offered(line)) is not None:
            offer, places = found
            names.append(offer.node)
            if nodes.write_changed(paths, offer, places):
                replace_text(paths.at(f"{NODES}/{offer.node}/{FAR}"), "", sync=False)
    for left in _far(paths) if known else ():
        if left not in known:
            nodes.forget(paths, left)
    return tuple(names)


def _far(paths: Paths) -> tuple[str, ...]:
    from dshpc_setup.jobs.offer import NODES

    folder = paths.at(NODES)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return ()
    return tuple(name for name in names if os.path.exists(f"{folder}/{name}/{FAR}"))
