"""Of several nodes the one whose offer a request is judged by: where it can run, and now if it may be.

Which node a job runs on is Slurm's affair; what it asks for is said in the words of one that has it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dshpc_setup.documents import foreign
from dshpc_setup.errors import DshpcError, Fix, usage_error
from dshpc_setup.jobs import availability, choosing, gpu_words, offer
from dshpc_setup.jobs.fit import Fit, Refusal, fit
from dshpc_setup.jobs.offer import Offer, owner_name
from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.targets import THIS_NODE
from dshpc_setup.machine import Machine
from dshpc_setup.slurm.client import Slurm

if TYPE_CHECKING:
    from dshpc_setup.jobs import luggage

_ASK_S = 10.0
_LESS = ("Take less along: submit in a folder with less in it, or give smaller inputs.",)
_NOT_CARRIED = {
    "in-place": "It works in the folder where it was started, and a copy of that would not do.",
    "processor": "Its environment or image is for another processor than the node's, {}.",
    "large": "It is too large to be carried there: {}.",
    "unreadable": "What it takes along cannot be read: {}.",
}


def all_of(
    own: Offer, folder: str = offer.NODES, *, asked: Request | None = None
) -> tuple[Offer, ...]:
    """The own node's first; one that cannot be read is left out. For a request that cannot be carried
    nobody carries."""
    others = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return (own,)
    for name in names:
        try:
            with open(f"{folder}/{name}/offer.json", encoding="utf-8") as file:
                found = offer.from_json(foreign.of_file(file))
        except (OSError, ValueError):
            continue
        if found.node != own.node:
            others.append(found)
    uid, named = os.getuid(), _named(asked)
    others = [each for each in others if each.takes(uid) or each.node in named]
    if any(each.carries for each in others) and asked is not None:
        why = _not_carried(asked)
        others = [
            replace(each, carried_work="") if why or _is_foreign(asked, own, each) else each
            for each in others
        ]
    count = 1 + len(others)
    without = tuple(each.node for each in others if each.is_apart)
    carriers = tuple(each.node for each in others if each.carries)
    return tuple(
        replace(each, nodes=count, without_work=without, carriers=carriers)
        for each in (own, *others)
    )


def _named(asked: Request | None) -> tuple[str | None, ...]:
    return () if asked is None else (asked.node, *asked.target_nodes)


def _not_carried(asked: Request) -> luggage.Refused | None:
    """Why its workspace cannot be carried to a node that has not the work folder."""
    from dshpc_setup.jobs import luggage  # imports are counted

    return luggage.refused(asked.to_json(), asked.incoming)


def _is_foreign(asked: Request, own: Offer, node: Offer) -> bool:
    """Whether its environment or image is of no use to the node's processor, where both are known."""
    has_programs = asked.environment is not None or asked.image is not None
    return has_programs and len({own.processor, node.processor} - {""}) > 1


def chosen(machine: Machine, asked: Request, offers: Sequence[Offer]) -> Offer:
    """Raises DshpcError where the request names a node that is not there, and where no node but one without
    the work folder could take it: workspace and log of a job lie in there."""
    own = offers[0]
    named = _named(asked)
    _refuse_not_the_owner((each for each in offers if each.node in named), os.getuid())
    _refuse_without_work((each for each in offers if each.node in named), asked, own)
    if asked.target_nodes:
        asked = replace(asked, node=asked.target_nodes[0])
    if len(offers) == 1 or asked.node == THIS_NODE:
        return own
    if asked.node is not None:
        for each in offers:
            if each.node == asked.node:
                return each
        raise usage_error(
            f"This cluster has no node {gpu_words.shown(asked.node)}.",
            f"Its nodes are {gpu_words.listed([each.node for each in offers])}.",
            "Name one of these: dshpc node list",
        )
    all_able = [each for each in offers if isinstance(_fit(asked, each, None), Fit)]
    able = [each for each in all_able if not each.is_apart]
    if not able:
        _refuse_without_work(all_able, asked, own)
        return max(offers, key=lambda each: len(each.gpus))
    if (asked.resources.nodes or 1) > 1:
        able = _alike(asked, able)
    if len(able) == 1 or not asked.resources.gpus:
        return able[0]
    jobs = availability.holders(machine)
    if jobs is None:
        return able[0]
    return max(able, key=lambda each: _free(asked, each, availability.on(machine, jobs, each)))


def _refuse_not_the_owner(offers: Iterable[Offer], uid: int) -> None:
    for each in offers:
        if not uid or each.owner is None or each.takes(uid):
            continue
        raise DshpcError(
            f"Node {gpu_words.shown(each.node)} takes the jobs of {owner_name(each.owner)} alone.",
            "The user of that machine has no range of ids, so a job of yours cannot run there as you.",
            (
                "Name another node, or none.",
                "For all users: give that user a range in /etc/subuid and /etc/subgid there, and join again.",
            ),
        )


def _refuse_without_work(offers: Iterable[Offer], asked: Request, own: Offer) -> None:
    """Raises DshpcError for the first that has another work folder than the cluster's, and to which this
    job is not carried."""
    each = next((each for each in offers if each.is_apart), None)
    if each is None:
        return
    node, why = each.node, _not_carried(asked)
    if _is_foreign(asked, own, each):
        from dshpc_setup.jobs import luggage  # imports are counted

        why = luggage.Refused("processor", each.processor)
    raise DshpcError(
        f"Node {gpu_words.shown(node)} could take this job, but has not the work folder of the cluster.",
        _NOT_CARRIED[why.code].format(why.details)
        if why
        else "A job's workspace, inputs and log lie in there, and the node has joined without it.",
        (
            *(_LESS if why and why.code == "large" else ()),
            "Share the work folder, and join again there: configure-environment --join TOKEN prints how.",
            Fix(
                "Jobs that need no files run there anyway",
                f"dshpc srun -w {node} --chdir=/tmp COMMAND",
                step="alternative",
            ),
        ),
    )


def _fit(asked: Request, each: Offer, room: availability.Availability | None) -> object:
    return fit(asked.resources, each, room, asked.partition)


def _free(asked: Request, each: Offer, room: availability.Availability) -> tuple[bool, int]:
    """Whether it can begin there now, and how little is left over then."""
    found = _fit(asked, each, room)
    if not isinstance(found, Fit) or found.free is None:
        return False, 0
    return found.free >= asked.resources.gpus, -len(each.gpus)


def _alike(asked: Request, able: Sequence[Offer]) -> list[Offer]:
    """Those of nodes that are enough for a job on several: all of its GPUs are asked for by one type.

    Raises DshpcError where there are too few.
    """
    groups: dict[tuple[str, ...], list[Offer]] = {}
    for each in able:
        found = _fit(asked, each, None)
        groups.setdefault(found.gres if isinstance(found, Fit) else (), []).append(each)
    wanted = asked.resources.nodes or 1
    enough = [each for group in groups.values() if len(group) >= wanted for each in group]
    if enough:
        return enough
    need = gpu_words.need(asked.resources) if asked.resources.gpus else "what it asks for"
    kind = ", of one kind" if len(able) >= wanted else ""
    most = max(map(len, groups.values()))
    why = f"it needs {wanted} nodes with {need} each{kind}, this cluster has {most}"
    raise choosing.refused(asked, Refusal((why,)))


def free_now(machine: Machine, asked: Request, has: Offer) -> tuple[Offer, tuple[str, ...]]:
    """The offer to judge a request by, of a node that takes jobs if one can run it; and all nodes that have
    GPUs of the same kind, as many as it wants, free now."""
    offers = [each for each in all_of(has, asked=asked) if not each.is_apart]
    told = Slurm(machine).nodes(deadline_s=_ASK_S).value
    usable = {each.name for each in told or () if each.usable}
    there = [each for each in offers if told is None or each.node in usable]
    jobs = availability.holders(machine) if asked.resources.gpus else None
    free: dict[str, tuple[Offer, frozenset[str]]] = {}
    for each in there if jobs is not None else ():
        found = _fit(asked, each, availability.on(machine, jobs or (), each))
        if isinstance(found, Fit) and found.kind is not None and (found.free or 0) >= found.gpus:
            free[each.node] = each, frozenset(gpu.model for gpu in found.kind.gpus)
    if has.node not in free and (free or has.node not in (each.node for each in there)):
        able = [each for each in there if isinstance(_fit(asked, each, None), Fit)]
        has = next(iter([*(each for each, _ in free.values()), *able]), has)
    models = free[has.node][1] if has.node in free else frozenset[str]()
    names = (node for node, (_, own) in free.items() if own == models)
    return has, tuple(sorted(names, key=lambda name: (len(name), name)))
