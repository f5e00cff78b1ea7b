"""Which jobs a request becomes, on which GPUs, and whether they can begin now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import answer, availability, gpu_words
from dshpc_setup.jobs.availability import Availability
from dshpc_setup.jobs.fit import Fit, Refusal, fit, needs_room
from dshpc_setup.jobs.gpu_words import Clock
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.jobs.request import Request
from dshpc_setup.machine import Machine


@dataclass(frozen=True)
class Planned:
    """One job: what it asks for, what it gets of which node, and what was free there."""

    request: Request
    fit: Fit
    has: Offer
    now: Availability | None


def planned(machine: Machine, asked: Request, has: Offer, clock: Clock) -> list[Planned]:
    """The jobs: one, or one for each target. What is free is asked for where it has to be.

    Raises DshpcError where one of them can never run.
    """
    if asked.target_nodes:
        return _on_several_nodes(machine, asked, has, clock)
    if asked.targets:
        return _of_targets(machine, asked, has, clock)
    must_ask = asked.if_busy == "refuse" and asked.resources.gpus > 0
    now = availability.ask(machine, has) if must_ask or needs_room(asked.resources, has) else None
    found = fit(asked.resources, has, now, asked.partition, clock)
    if isinstance(found, Refusal):  # in words that say what is free now
        again = fit(
            asked.resources, has, now or availability.ask(machine, has), asked.partition, clock
        )
        raise refused(asked, again if isinstance(again, Refusal) else found)
    if asked.node is not None and has.nodes > 1:
        found = replace(found, node=has.node)
    return [Planned(asked, found, has, now)]


def _on_several_nodes(machine: Machine, asked: Request, has: Offer, clock: Clock) -> list[Planned]:
    """Each target judged by its own node; raises DshpcError (usage) where there is no such node."""
    from dshpc_setup.jobs import node_choice

    offers = node_choice.all_of(has, asked=asked)
    jobs = []
    for node, words in zip(asked.target_nodes, asked.targets, strict=True):
        one = replace(asked, node=node, targets=(words,), target_nodes=())
        jobs += _of_targets(machine, one, node_choice.chosen(machine, one, offers), clock)
    return jobs


def _of_targets(machine: Machine, asked: Request, has: Offer, clock: Clock) -> list[Planned]:
    from dshpc_setup.jobs import targets

    targets.check_node(asked.node, has)
    chosen = [targets.chosen(words, has) if words else () for words in asked.targets]
    must_ask = any(chosen) or asked.if_busy == "refuse" or needs_room(asked.resources, has)
    now = availability.ask(machine, has) if must_ask else None
    jobs = []
    for words, gpus in zip(asked.targets, chosen, strict=True):
        found = (
            targets.fit(asked.resources, has, gpus, now, asked.partition)
            if gpus
            else fit(asked.resources, has, now, asked.partition, clock)
        )
        if isinstance(found, Refusal):
            raise refused(asked, found)
        if has.nodes > 1:
            found = replace(found, node=has.node)
        jobs.append(Planned(replace(asked, targets=(words,)), found, has, now))
    return jobs


def check_free(jobs: Sequence[Planned], asked: Request, clock: Clock) -> None:
    """Before anything is submitted that may not wait; raises DshpcError where a GPU is taken, by
    others or by two of these jobs."""
    whys = [answer.busy(each.fit, each.now, clock) for each in jobs]
    named = [
        (each.has.node, kind)
        for each in jobs
        if each.fit.targeted and each.fit.kind
        for kind in each.fit.kind.types
    ]
    if len(set(named)) < len(named):
        whys.append("several targets name one GPU, and one job would wait for the other")
    if any(whys):
        raise DshpcError(
            f"{gpu_words.shown(asked.name)} cannot begin at once: {'; '.join(filter(None, whys))}.",
            "Nothing is queued, as --no-wait says.",
            ("Let it wait: leave --no-wait out.", "See who has which GPU: dshpc gpus"),
        )


def refused(asked: Request, found: Refusal) -> DshpcError:
    return DshpcError(
        f"{gpu_words.shown(asked.name)} cannot run here: {'; '.join(found.whys)}.",
        "Not queued: this cluster can never run it.",
        ("See what there is: dshpc gpus, dshpc status", less(asked)),
    )


def less(*jobs: Request) -> str:
    """What who asks for too much can do."""
    gpus = any(job.resources.gpus or job.resources.shards for job in jobs)
    return "Ask for less, or for another GPU." if gpus else "Ask for what there is."
