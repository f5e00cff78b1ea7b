"""The pages that look: overview, a GPU, a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dshpc_setup.cluster.gpus import Card
from dshpc_setup.dashboard import charts, files
from dshpc_setup.dashboard.board import Board, Seen, Snapshot
from dshpc_setup.dashboard.history import HOUR_S, WEEK_S, Sample, key
from dshpc_setup.dashboard.site import Site, get
from dshpc_setup.diagnose.report import groups
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.jobs.view import View
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.slurm.nodes import Node

_QUEUE, _RECENT, _NODES, _OTHERS = 20, 10, 24, 8


def routes(site: Site) -> list[Any]:
    return [
        get("/", overview, site),
        get("/gpus/{index:int}", gpu, site),
        get("/nodes", nodes, site),
        get("/nodes/{name}", node, site),
        get("/nodes/{name}/log", node_log, site),
    ]


# Overview


def overview(site: Site, request: Request) -> Response:
    return site.page("overview.html", here="overview", **overview_values(site.board))


def overview_values(board: Board) -> dict[str, Any]:
    now = board.look()
    views = now.jobs.value.views if now.jobs.value else ()
    waiting = [one for one in views if one.state == "PENDING"]
    running = [one for one in views if not one.is_over and one.state != "PENDING"]
    ended = sorted((one for one in views if one.is_over), key=_ended, reverse=True)
    found = groups(now.doctor.value.findings) if now.doctor.value else []
    every = now.status.value.nodes if now.status.value else ()
    others = [each for each in now.others.value or () if each.gpus.devices]
    lost = [each for each in every if not each.usable]
    return {
        "now": now,
        "nodes": [*lost, *(each for each in every if each.usable)][:_NODES]
        if len(every) > _NODES
        else every,
        "lost": len(lost),
        "free": free(now.status.value),
        "cards": now.gpus.value.cards() if now.gpus.value else (),
        "others": [(each.node, each.cards()) for each in others[:_OTHERS]],
        "unseen": max(0, len(others) - _OTHERS),
        "waiting": waiting[:_QUEUE],
        "running": running[:_QUEUE],
        "more": max(0, len(waiting) - _QUEUE) + max(0, len(running) - _QUEUE),
        "ended": ended[:_RECENT],
        "causes": found,
        "why": {
            each.job: each.why for each in (now.status.value and now.status.value.pending) or ()
        },
    }


def _ended(one: View) -> float:
    return one.ended or 0.0


@dataclass(frozen=True)
class Free:
    """GPUs of a type, on all nodes that take jobs."""

    kind: str
    free: int
    total: int


def free(status: ClusterStatus | None) -> tuple[Free, ...]:
    """By type, as the nodes that take jobs have them."""
    total: dict[str, int] = {}
    used: dict[str, int] = {}
    for one in status.nodes if status is not None else ():
        for name, count in one.gres_total.items():
            if name.split(":")[0] == "gpu":
                kind = name.partition(":")[2] or "gpu"
                total[kind] = total.get(kind, 0) + count
                in_use = one.gres_in_use.get(name, 0) if one.usable else count
                used[kind] = used.get(kind, 0) + in_use
    return tuple(Free(kind, count - used[kind], count) for kind, count in total.items())


# A GPU and a node


def gpu(site: Site, request: Request) -> Response:
    return site.page("gpu.html", here="overview", **gpu_values(site, request.path_params["index"]))


@dataclass(frozen=True)
class Drawn:
    """A curve with its words."""

    title: str
    unit: str
    hour: charts.Curve
    week: charts.Curve


def gpu_values(site: Site, index: int) -> dict[str, Any]:
    now = site.board.look()
    cards = now.gpus.value.cards() if now.gpus.value else ()
    card = next((each for each in cards if each.device.index == index), None)
    if card is None:
        _need(now.gpus)
        raise HTTPException(404, f"There is no GPU {index}.")
    end = site.board.time()
    hour, week = site.board.history.hour(key(card)), site.board.history.week(key(card))
    return {
        "now": now,
        "card": card,
        "index": index,
        "drawn": _drawn(card, hour, week, end),
        "spans": charts.spans([(each.at, each.jobs) for each in hour], end - HOUR_S, end),
        "week_spans": charts.spans([(each.at, each.jobs) for each in week], end - WEEK_S, end),
        "findings": _about(now, card),
    }


def _need(seen: Seen[Any]) -> None:
    """Raises DshpcError where there is no answer yet, so that nobody knows what there is."""
    if seen.error is not None:
        raise seen.error
    if seen.value is None:
        raise DshpcError(
            "It has not been asked yet.", "", ("Look again in a moment.",), Exit.INCOMPLETE
        )


def _drawn(
    card: Card, hour: Sequence[Sample], week: Sequence[Sample], end: float
) -> tuple[Drawn, ...]:
    curves = (
        ("Use", "%", "utilization_percent", 100.0),
        ("Memory", "MiB", "memory_used_mib", card.memory_total_mib),
        ("Temperature", "°C", "temperature_c", 100.0),
        ("Power", "W", "power_w", card.reading.power_limit_w),
    )

    def of(samples: Sequence[Sample], name: str, begin: float, top: float | None) -> charts.Curve:
        return charts.curve([(each.at, getattr(each, name)) for each in samples], begin, end, top)

    return tuple(
        Drawn(title, unit, of(hour, name, end - HOUR_S, top), of(week, name, end - WEEK_S, top))
        for title, unit, name, top in curves
    )


def _about(now: Snapshot, card: Card) -> list[Any]:
    """What doctor finds wrong of GPUs, where this one has a problem."""
    report = now.doctor.value
    return [each for each in (report.findings if report else ()) if each.id in card.device.problems]


def nodes(site: Site, request: Request) -> Response:
    now = site.board.look()
    return site.page("nodes.html", here="overview", now=now)


def node_log(site: Site, request: Request) -> Response:
    found = _node(site.board.look(), request)
    log = files.shown(site.source.node_log(found.name).encode(errors="replace"))
    return site.page("node_log.html", here="overview", node=found, log=log)


def _node(now: Snapshot, request: Request) -> Node:
    """Raises HTTPException (404) for one that the cluster has not."""
    nodes = now.status.value.nodes if now.status.value else ()
    found = next((each for each in nodes if each.name == request.path_params["name"]), None)
    if found is None:
        _need(now.status)
        raise HTTPException(404, "There is no such node.")
    return found


def node(site: Site, request: Request) -> Response:
    now = site.board.look()
    found = _node(now, request)
    views = now.jobs.value.views if now.jobs.value else ()
    return site.page(
        "node.html",
        here="overview",
        now=now,
        node=found,
        cards=_cards_of(now, found.name),
        is_own=_is_own(now, found.name),
        running=[
            one
            for one in views
            if not one.is_over
            and one.state != "PENDING"
            and found.name in (one.nodes or (found.name,))
        ],
    )


def _is_own(now: Snapshot, node: str) -> bool:
    """Whether it is the controller's own; a cluster of one node may call it otherwise."""
    return all(each.node != node for each in now.others.value or ())


def _cards_of(now: Snapshot, node: str) -> tuple[Card, ...]:
    if _is_own(now, node):
        return now.gpus.value.cards() if now.gpus.value else ()
    return next((each.cards() for each in now.others.value or () if each.node == node), ())
