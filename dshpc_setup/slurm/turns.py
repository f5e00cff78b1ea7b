"""Which jobs have waited for `longest_wait`, and what may still begin on the nodes where they will run.

Such a job comes first: it gets a reservation of Slurm's on its nodes, and nobody else begins there. Jobs that
take nothing from it get a reservation beside it, which lets them begin as ever. Pure: see
docs/decisions/0046-nobody-waits-for-ever.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dshpc_setup.slurm.holders import Holder
from dshpc_setup.slurm.longest_wait import BESIDE, OURS, Look, Need, Place, Waiting, whole_gpus
from dshpc_setup.slurm.nodes import parse_gres

_AT_ONCE = 8  # jobs of one kind that are let begin before any of them has


@dataclass(frozen=True)
class Turn:
    """A job that comes first on these nodes."""

    job: Waiting
    nodes: tuple[str, ...]

    @property
    def reservation(self) -> str:
        return f"{OURS}{self.job.tasks[0]}"


@dataclass(frozen=True)
class Decision:
    """`members`: job -> its reservation, of those that come first and of those that may begin beside."""

    turns: tuple[Turn, ...] = ()
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def reservations(self) -> Mapping[str, tuple[str, ...]]:
        """Name -> nodes."""
        nodes = tuple(sorted({name for turn in self.turns for name in turn.nodes}))
        return {
            **{name: nodes for name in self.members.values() if name.startswith(BESIDE)},
            **{turn.reservation: turn.nodes for turn in self.turns},
        }


def kept(look: Look, turns: Iterable[Turn]) -> dict[str, dict[str, str]]:
    """Node -> type of GPU ("" without one) -> the first job for which those that are free are kept."""
    places = {place.name: place for place in look.places}
    found: dict[str, dict[str, str]] = {}
    for turn in turns:
        for name in turn.nodes:
            for kind in places[name].kinds(turn.job.need):
                found.setdefault(name, {}).setdefault(kind.partition(":")[2], turn.job.tasks[0])
    return found


def next_look_s(queue: Iterable[Waiting], longest_s: float) -> float:
    """How long until the first of them has waited long enough; what comes later does so later."""
    left = (longest_s - job.waited_s for job in queue if job.waited_s is not None)
    return max(0.0, min((*left, longest_s)))


def decide(look: Look, holders: Sequence[Holder], longest_s: float) -> Decision:
    """Who comes first where, the first in the queue before the others, and who may begin beside them."""
    rooms = {place.name: _Room(place, holders) for place in look.places}
    queue = [job for job in look.queue if job.waited_s is not None]
    queue = [job for job in queue if not job.reservation or job.reservation.startswith(OURS)]
    turns = _turns(queue, look, rooms, longest_s)
    members = {turn.job.tasks[0]: turn.reservation for turn in turns}
    reserved = {name for turn in turns for name in turn.nodes}
    kept = [room for room in rooms.values() if room.place.name in reserved]
    waits: dict[str, int] = {}
    for job, task in _tasks(queue if kept else ()):
        kind = _kind(job.need)
        near = [room for room in kept if room.place.is_usable and room.place.fits(job)]
        near = [room for room in near if room.has_gpus(job.need)] or near
        if task in members or not near or waits.get(kind, 0) >= _AT_ONCE:
            continue
        if not any(room.is_taken_from(job.need, room.first) for room in near):
            waits[kind] = waits.get(kind, 0) + 1
            members[task] = f"{BESIDE}{kind}"
            for room in near:
                room.beside.append(job.need)
    return Decision(turns, members)


def _turns(
    queue: Iterable[Waiting], look: Look, rooms: Mapping[str, _Room], longest_s: float
) -> tuple[Turn, ...]:
    """Of those that have waited so long who is overtaken: for the others Slurm's own order is enough. None of
    them comes before one that stands further in front."""
    turns: list[Turn] = []
    for job in queue:
        if job.waited_s is None or job.waited_s < longest_s:
            continue
        before = look.reservations.get(f"{OURS}{job.tasks[0]}")
        chosen = _nodes(job, rooms, before.nodes if before else ())
        for room in chosen:
            room.ahead.append(job.need)
        several = job.asked.nodes > 1
        if before or several or any(room.is_overtaken(job.need) for room in chosen):
            turns += [Turn(job, tuple(room.place.name for room in chosen))] if chosen else []
            for room in chosen:
                room.first.append(job.need)
    return tuple(turns)


def _tasks(queue: Iterable[Waiting]) -> Iterator[tuple[Waiting, str]]:
    """No more of one array than could be let begin; the first of them may come first itself."""
    for job in queue:
        for task in job.tasks[: _AT_ONCE + 1]:
            yield job, task


def _kind(need: Need) -> str:
    """ "cpu", "h100", "any": jobs that wait for the same are in one reservation, in which Slurm goes on to
    the next only where the one before has begun."""
    names = sorted(name.partition(":")[2] or "any" for name in need.gpus)
    return "+".join(re.sub(r"[^\w.+-]", "_", name) for name in names) or "cpu"


def _nodes(job: Waiting, rooms: Mapping[str, _Room], before: Sequence[str]) -> list[_Room]:
    """Where it will run: where it came first before, else where it could soonest; [] for nowhere, or behind
    another that has waited as long."""
    fit = [room for room in rooms.values() if room.place.fits(job)]
    free = [room for room in fit if not room.is_taken_from(job.need, room.ahead)]
    same = [room for room in free if room.place.name in before]
    others = [room for room in free if room.place.is_usable]
    others.sort(key=lambda room: (room.begins(job.need), room.place.name))
    stays = len(same) == job.asked.nodes
    if stays and (all(room.place.comes_back for room in same) or len(others) < len(same)):
        return same
    return others[: job.asked.nodes] if len(others) >= job.asked.nodes else []


class _Room:
    """A node, with those that come first there, those that have waited as long (`ahead`), and those that may
    begin beside them."""

    def __init__(self, place: Place, holders: Sequence[Holder]) -> None:
        self.place = place
        self.first: list[Need] = []
        self.ahead: list[Need] = []
        self.beside: list[Need] = []
        here = [(job, job.nodes.index(place.name)) for job in holders if place.name in job.nodes]
        self.held = [
            (
                Need(
                    _at(job.cpus, at),
                    _at(job.memory_mib, at),
                    whole_gpus(parse_gres(job.on(place.name))),
                ),
                float("inf") if job.until is None else job.until,
            )
            for job, at in here
        ]

    def _free(self) -> Need:
        cpus = self.place.cpus - sum(need.cpus for need, _ in self.held)
        memory = self.place.memory_mib - sum(need.memory_mib for need, _ in self.held)
        return Need(cpus, memory)

    def begins(self, need: Need) -> float:
        """When what runs there has left enough, in seconds of the epoch: 0 for now."""
        kinds, free = self.place.kinds(need), self._free()
        gpus, cpus, memory = self.place.free(kinds), free.cpus, free.memory_mib
        wanted, at = sum(need.gpus.values()), 0.0
        for held, until in sorted(self.held, key=lambda each: each[1]):
            if gpus >= wanted and cpus >= need.cpus and memory >= need.memory_mib:
                break
            gpus += _of(held, kinds)
            cpus, memory, at = cpus + held.cpus, memory + held.memory_mib, until
        return at

    def has_gpus(self, need: Need) -> bool:
        """Whether enough are free now."""
        return self.place.free(self.place.kinds(need)) >= sum(need.gpus.values())

    def is_overtaken(self, need: Need) -> bool:
        """Whether one of the jobs that run here leaves too little for it as it ends: then others begin with
        that. Else Slurm gives it to the first in the queue."""
        kinds, wanted = self.place.kinds(need), sum(need.gpus.values())
        lacking = self.place.free(kinds) < wanted
        return need.everything or any(
            (lacking and _of(held, kinds) < wanted)
            or held.cpus < need.cpus
            or held.memory_mib < need.memory_mib
            for held, _ in self.held
            if not lacking or _touches(held, kinds)
        )

    def is_taken_from(self, need: Need, others: Sequence[Need]) -> bool:
        """Whether a job that begins now takes what these need."""
        kinds = frozenset[str]().union(*map(self.place.kinds, others))
        if others and (need.everything or any(other.everything for other in others)):
            return True
        if self.place.kinds(need) & kinds and not self._gets_another(need, kinds):
            return True
        free, taken = self._free(), [*others, *self.beside, need]
        own_cpus, own_memory = self._given_back(need)  # before it can begin
        for other in others:
            cpus, memory = self._given_back(other)
            if free.cpus + own_cpus + cpus < sum(each.cpus for each in taken):
                return True
            if free.memory_mib + own_memory + memory < sum(each.memory_mib for each in taken):
                return True
        return False

    def _gets_another(self, need: Need, kinds: frozenset[str]) -> bool:
        """Whether one that takes any GPU gets one of another type: none of these is free."""
        others = self.place.gpus.keys() - kinds
        any_type = need.gpus.get("gpu", 0)
        return any_type > 0 and not self.place.free(kinds) and self.place.free(others) >= any_type

    def _given_back(self, first: Need) -> tuple[int, int]:
        """CPUs and memory that come free, at least, with the GPUs for which it waits."""
        kinds = self.place.kinds(first)
        missing = sum(first.gpus.values()) - self.place.free(kinds)
        holders = [held for held, _ in self.held if _touches(held, kinds)]
        ended = 0
        for gpus in sorted((_of(held, kinds) for held in holders), reverse=True):
            if missing <= 0:
                break
            missing, ended = missing - gpus, ended + 1
        cpus, memory = (
            sum(sorted(values)[:ended])
            for values in (
                [held.cpus for held in holders],
                [held.memory_mib for held in holders],
            )
        )
        return cpus, memory


def _touches(need: Need, kinds: frozenset[str]) -> bool:
    return any(name in kinds or name == "gpu" for name in need.gpus)


def _of(need: Need, kinds: frozenset[str]) -> int:
    return sum(count for name, count in need.gpus.items() if name in kinds)


def _at(values: Sequence[int], at: int) -> int:
    return values[at] if at < len(values) else 0
