"""What the nodes of one cluster must have in common, and how each of the others is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from shlex import quote

from dshpc_setup.diagnose.model import (
    FAULTS,
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.slurm_daemons import DAEMON_CHECKS
from dshpc_setup.diagnose.slurm_gpus import GPU_CHECKS
from dshpc_setup.diagnose.slurm_known import ACROSS, DOWN, NODE_DAEMON_UP, PROGRAMS, RUNS, restart
from dshpc_setup.diagnose.slurm_programs import PROGRAM_CHECKS
from dshpc_setup.diagnose.slurm_queue import QUEUE_CHECKS
from dshpc_setup.diagnose.slurm_upkeep import UPKEEP_CHECKS, release
from dshpc_setup.errors import Fix, configure
from dshpc_setup.jobs import offer
from dshpc_setup.observed.model import Inside, NodeSeen, OtherUser
from dshpc_setup.terminal.sanitize import listed

_CLOCKS_S = 5.0  # a token of Slurm's is good for 60 s, by the clock of who receives it
_OF_EACH = (
    NODE_DAEMON_UP,
    PROGRAMS,
    *("DSH-SL-011", "DSH-SL-024", "DSH-SL-029", "DSH-SL-032", "DSH-SL-036", "DSH-SL-052"),
)
"""The checks that look at what a node says of itself, and need nothing else."""
_LOOKS = {
    check.id: check
    for check in (
        *DAEMON_CHECKS, *GPU_CHECKS, *PROGRAM_CHECKS, *QUEUE_CHECKS, *UPKEEP_CHECKS,
    )
    if check.id in _OF_EACH
}  # fmt: skip
_MOST_NAMED = 20
_Answers = tuple[tuple[NodeSeen, Inside], ...]


def _of_answers(
    look: Callable[[Inside, _Answers], Verdict],
) -> Callable[[CheckInput], Verdict]:
    """A look at what the controller's node and the others say; well where there are no others."""

    def looked(known: CheckInput) -> Verdict:
        others, own = known.observed.others, known.observed.inside
        if not others:
            return fine()
        if own is None:
            return unknown(known.observed.inside_problem or "The controller's node was not asked.")
        answers = tuple((each, each.inside) for each in others if each.inside is not None)
        return look(own, answers) if answers else unknown("No other node has answered.")

    return looked


def _log(node: str) -> Fix:
    return Fix("See what it says", f"dshpc logs --node {quote(node)} --tail 50", step="look")


def _answer(known: CheckInput) -> Verdict:
    silent = [each for each in known.observed.others if each.inside is None]
    if not silent:
        return fine(*(each.name for each in known.observed.others))
    first = silent[0]
    down = [each for each in silent if each.status != "running"]
    fixes = (
        (Fix("Start it", f"dshpc node resume {quote(down[0].name)}"),)
        if down
        else (_log(first.name),)
    )
    return fault(
        f"{_named(silent)} could not be asked how {'it is' if len(silent) == 1 else 'they are'}. What is "
        "said below is of the others.",
        *(f"{each.name}: {each.problem}" for each in silent[:_MOST_NAMED]),
        fix=fixes,
    )


def _named(nodes: list[NodeSeen]) -> str:
    names = listed(tuple(each.name for each in nodes[:_MOST_NAMED]))
    return f"Node{'' if len(nodes) == 1 else 's'} {names}"


def _versions(own: Inside, others: _Answers) -> Verdict:
    controller = _version(own, "slurmctld")
    rows = [
        (each.name, _version(inside, "slurmd"), inside.wheel_version) for each, inside in others
    ]
    told = [f"controller: slurmctld {controller}, dshpc {own.wheel_version}"]
    told += [f"{name}: slurmd {version}, dshpc {wheel}" for name, version, wheel in rows]
    newer = [
        name
        for name, version, _ in rows
        if version and controller and release(version) > release(controller)
    ]
    if newer:
        return fault(
            f"slurmd on {listed(tuple(newer))} is newer than slurmctld. Slurm allows only the reverse.",
            *told,
            fix=(configure("Give all nodes one image"),),
        )
    other = [
        name
        for name, version, wheel in rows
        if (version, wheel) != (controller, own.wheel_version) and version
    ]
    if not other:
        return fine(*told[: _MOST_NAMED + 1])
    return warning(
        f"Slurm or dshpc on {listed(tuple(other))} is not of the controller's version.",
        *told,
        fix=(configure("Give all nodes one image"),),
    )


def _version(inside: Inside, name: str) -> str | None:
    return next((each.version for each in inside.daemons if each.name == name), None)


def _keys(own: Inside, others: _Answers) -> Verdict:
    if own.key is None or own.key.kid is None:
        return unknown("The controller's key could not be read: see DSH-SL-026.")
    bad = []
    for each, inside in others:
        key = inside.key
        if key is None or key.state == "timeout":
            continue
        if key.kid != own.key.kid:
            how = f"signs with {key.kid}" if key.kid else key.detail or f"its key is {key.state}"
            bad.append((each.name, f"{each.name}: {how}; the controller signs with {own.key.kid}"))
    if not bad:
        return fine(own.key.kid)
    return fault(
        f"{listed(tuple(name for name, _ in bad))} has another key than the controller: neither understands "
        "what the other sends, and no job starts there.",
        *(text for _, text in bad),
        fix=(
            Fix("Give all nodes that are up a new one; running jobs are not affected",
                "dshpc key rotate"),
            _log(bad[0][0]),
        ),
    )  # fmt: skip


def _clocks(own: Inside, others: _Answers) -> Verdict:
    off = _off(own)
    if off is None:
        return unknown("The controller was not asked for the time.")
    apart = [
        (each.name, there - off) for each, inside in others if (there := _off(inside)) is not None
    ]
    told = [f"{name}: {abs(by):.1f} s {'ahead' if by > 0 else 'behind'}" for name, by in apart]
    bad = [name for name, by in apart if abs(by) > _CLOCKS_S]
    if not bad:
        return fine(*told[:_MOST_NAMED])
    return fault(
        f"The clock of {listed(tuple(bad))} differs from the controller's. A token of Slurm's is good for "
        "60 s by the clock of who receives it: beyond that the node cannot register, and no job starts.",
        *told,
        fix=(
            Fix("See whether its clock is kept right, on that machine", "timedatectl", step="look"),
            Fix("Keep it right, there", "sudo timedatectl set-ntp true"),
        ),
    )


def _off(inside: Inside) -> float | None:
    if inside.time is None or inside.asked_at is None:
        return None
    return inside.time - inside.asked_at


def _names(_: Inside, others: _Answers) -> Verdict:
    bad = [each.name for each, inside in others if inside.controller_resolves is False]
    if not bad:
        return fine()
    return fault(
        f"{listed(tuple(bad))} does not find the controller by its name: slurmd there cannot register, and "
        "jobs there cannot report.",
        *(f"{name}: getent hosts finds no address of the controller's name" for name in bad),
        fix=(_log(bad[0]), restart()),
    )


def _noted(far: list[str]) -> Verdict:
    return note("Not all nodes have the work folder.", *far) if far else fine()


def _work(known: CheckInput) -> Verdict:
    here = known.observed.work
    inside = known.observed.inside
    far = [
        offer.other_work(node, carries=carries)
        for node, carries in (inside.other_work if inside is not None else {}).items()
    ]
    if not known.observed.others:
        return _noted(far)
    if here is None:
        return unknown("The work folder could not be looked at on this machine.")
    bad = []
    for each in known.observed.others:
        there = each.inside.work if each.inside is not None else None
        if there is not None and there != here:
            how = "it has no such folder" if there.inode is None else "there it is another folder"
            bad.append((each.name, f"{each.name}: {how}"))
    if not bad:
        return _noted(far)
    return fault(
        f"{listed(tuple(name for name, _ in bad))} has not the work folder of this machine: a job there does "
        "not find its files, and what it writes is not seen elsewhere.",
        *(text for _, text in bad),
        fix=(Fix("Mount the same folder there under the same path, then restart the node",
                 f"dshpc node resume {quote(bad[0][0])}"),),
    )  # fmt: skip


def _users(known: CheckInput) -> Verdict:
    inside = known.observed.inside
    found = inside.other_users if inside is not None else ()
    if not found:
        return fine()
    names = tuple(dict.fromkeys(each.name for each in found))
    return warning(
        f"{listed(names[:_MOST_NAMED])} of this cluster is somebody else on another machine of it. Files "
        "belong to numbers: what a job writes there is another user's, who can read and change it, and the "
        "job can do that with the other's files.",
        *map(_other, found[:_MOST_NAMED]),
        fix=(
            Fix("Give the name the same number on both machines, as root on that machine",
                "usermod -u NUMBER NAME"),
            Fix("Then let that machine join again, which reports its users again", "dshpc node token --once",
                step="after"),
            Fix("Until then, keep the user's jobs off that node",
                f"dshpc srun --exclude={quote(found[0].node)} COMMAND", step="alternative"),
        ),
    )  # fmt: skip


def _other(each: OtherUser) -> str:
    told = [f"{each.node}: {each.name} has the number {each.uid} in the cluster"]
    if each.number is not None:
        told.append(f"{each.name} there has {each.number}")
    if each.other is not None:
        told.append(f"{each.uid} there is {each.other}")
    return "; ".join(told)


def _each(known: CheckInput) -> Verdict:
    found = list(_faults(known))
    if not found:
        return fine(*(each.name for each in known.observed.others if each.inside is not None))
    tell = fault if any(state == "error" for _, _, state, _ in found) else warning
    nodes = tuple(dict.fromkeys(node for node, *_ in found))
    checks = tuple(dict.fromkeys(check.id for _, check, *_ in found))
    return tell(
        f"Something is wrong on {listed(nodes[:_MOST_NAMED])} itself. The other nodes take jobs.",
        *(f"{node}: {check.fault_title} ({check.id}). {cause}" for node, check, _, cause in found),
        fix=(_log(nodes[0]), *(Fix("Read what helps", f"dshpc explain {each}") for each in checks)),
    )


def _faults(known: CheckInput) -> Iterator[tuple[str, Check, str, str]]:
    """Node, check, state and cause of each fault that a node has by itself."""
    for node in known.observed.others:
        if node.inside is None:
            continue
        seen = replace(known, observed=replace(known.observed, inside=node.inside, others=()))
        for check in _LOOKS.values():
            verdict = check.look(seen)
            if verdict.state in FAULTS:
                yield node.name, check, verdict.state, verdict.cause


ANSWER = "DSH-SL-060"
_NEEDS = (RUNS,)
ACROSS_CHECKS: tuple[Check, ...] = (
    Check(ANSWER, "slurm", "Each node says how it is", "A node does not say how it is", _answer,
          needs=_NEEDS, because=(DOWN,)),
    Check("DSH-SL-061", "slurm", "The nodes' versions of Slurm fit together",
          "Nodes have versions of Slurm that do not fit together", _of_answers(_versions),
          needs=_NEEDS),
    Check("DSH-SL-062", "slurm", "All nodes have one key", "A node has another key",
          _of_answers(_keys), needs=_NEEDS),
    Check("DSH-SL-063", "slurm", "The nodes' clocks agree", "The nodes' clocks disagree",
          _of_answers(_clocks), needs=_NEEDS),
    Check("DSH-SL-064", "slurm", "All nodes find the controller by name",
          "A node does not find the controller by name", _of_answers(_names), needs=_NEEDS),
    Check("DSH-SL-065", "slurm", "All nodes have one work folder",
          "A node has not the work folder of the others", _work, needs=_NEEDS),
    Check("DSH-SL-066", "slurm", "The other nodes are well", "Another node has a fault of its own",
          _each, needs=_NEEDS,
          because=(DOWN, ANSWER, *ACROSS)),
    Check("DSH-SL-068", "slurm", "Users are the same on all machines",
          "A user is somebody else on another machine", _users, needs=_NEEDS),
)  # fmt: skip
