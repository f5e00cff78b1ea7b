"""The node: drained, down or refused, by whom and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from shlex import quote

from dshpc_setup.diagnose.common import cluster
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fault, fine, unknown, warning
from dshpc_setup.diagnose.slurm_known import (
    ACROSS,
    CONTROLLER,
    DOWN,
    DRAINED,
    INVALID,
    LOG,
    NODE,
    NODE_DAEMON_UP,
    NOT_IN_CONTAINER,
    PROGRAMS,
    PROLOG,
    RUNS,
    counted,
    described,
    gpus_inside,
    nodes,
    own_file,
    reconfigure,
    resume,
)
from dshpc_setup.diagnose.slurm_prolog import prolog
from dshpc_setup.errors import Fix
from dshpc_setup.observed.model import Inside
from dshpc_setup.slurm.nodes import Node
from dshpc_setup.terminal.sanitize import listed


def _of_nodes(
    look: Callable[[CheckInput, tuple[Node, ...]], Verdict],
) -> Callable[[CheckInput], Verdict]:
    """A look at the controller's nodes; skipped while there are none to see."""

    def looked(known: CheckInput) -> Verdict:
        found = nodes(known)
        return look(known, found) if found else unknown("The controller has reported no node.")

    return looked


def _drained(_: CheckInput, found: tuple[Node, ...]) -> Verdict:
    bad = [node for node in found if node.drained]
    if not bad:
        return fine(*map(described, found))
    node = bad[0]
    evidence = tuple(map(described, bad))
    if any(each.has_former_key for each in bad):
        return _with_former_key(bad)
    reason = node.reason or "none was given"
    if node.by_a_person:
        return warning(
            f"{node.who} drained it, with the reason: {reason}. It takes no new jobs until somebody "
            "takes it back; dshpc leaves it so.",
            *evidence,
            fix=resume(node),
        )
    if node.over:
        cause = (
            f"It was drained for something that is over ({reason}), and only has to be taken back."
        )
        if node.is_for("former_run"):
            cause = (
                "It was away as a job that ran there was queued again, and was given that job anew before it "
                "had ended the former run. It refused, Slurm queued the job again and drained the node for "
                "it: it only has to be taken back."
            )
        return fault(cause, *evidence, fix=resume(node, automatic=True))
    return fault(
        f"The node was drained and takes no new jobs. The reason is: {reason}.",
        *evidence,
        fix=(NODE, *resume(node)),
    )


def _with_former_key(bad: Sequence[Node]) -> Verdict:
    names = listed(tuple(each.name for each in bad if each.has_former_key))
    return fault(
        f"{names}, on another machine, has the key of before the last dshpc key rotate: neither it nor the "
        "controller understands what the other sends. It takes jobs again once it has joined again.",
        *map(described, bad),
        fix=(
            Fix("Where dshpc node add has made it a node from here", "dshpc node add --again"),
            Fix("Else make a token", "dshpc node token --once", step="alternative"),
            Fix("And type on that machine, where its dshpc is",
                "./configure-environment --yes --no-build --join TOKEN", step="after"),
        ),
    )  # fmt: skip


def _drained_for(reason: str, cause: str, *fixes: Fix) -> Callable[[CheckInput], Verdict]:
    """A check that the node is not drained with a reason of Slurm's own; CONTAINER is its name."""

    def look(known: CheckInput, found: tuple[Node, ...]) -> Verdict:
        bad = [node for node in found if node.drained and node.is_for(reason)]
        if not bad:
            return fine()
        first = tuple(
            replace(
                fix,
                command=fix.command
                and fix.command.replace("CONTAINER", quote(cluster(known).container)),
            )
            for fix in fixes
        )
        return fault(cause, *map(described, bad), fix=(*first, *resume(bad[0])))

    return _of_nodes(look)


def _fewer_gpus(known: CheckInput, found: tuple[Node, ...]) -> Verdict:
    inside = known.observed.inside
    # Drained nodes keep their reason; only a refused registration says that it still holds
    told = [
        node
        for node in found
        if node.is_for("fewer_gres") and (node.invalid or (inside is None and node.drained))
    ]
    own = found if len(found) == 1 else [it for it in found if it.name == _own_name(known)]
    wanted = sum(node.gpus for node in own)  # other nodes have GPUs of their own
    seen = gpus_inside(known) if own else None
    short = seen is not None and seen < wanted
    if not told and not short:
        return fine(f"{counted(wanted, 'GPU')} configured")
    how = f", and the container sees {counted(seen or 0, 'GPU')}" if short else ""
    fixes = [
        reconfigure(
            "If the GPUs are gone for good: let the cluster do without; running jobs are not affected"
        )
    ]
    if own_file(known, "gres.conf") or own_file(known, "slurm.conf"):
        fixes.append(Fix("Your own gres.conf and slurm.conf must name the same GPUs; the new texts",
                         "dshpc config diff"))  # fmt: skip
    return fault(
        f"Slurm is configured for {counted(wanted, 'GPU')}{how}. It drains a node that has fewer than "
        "it is configured for.",
        *map(described, told or found),
        *_gres_lines(inside),
        fix=(
            Fix(
                "See whether the GPUs are well on this machine",
                "dshpc detect --explain",
                step="look",
            ),
            *fixes,
        ),
    )


def _own_name(known: CheckInput) -> str:
    """The node of the container that was asked."""
    if known.plan is not None and known.plan.is_joined:  # its container is named as the cluster is
        return known.plan.node
    return cluster(known).container.removesuffix("-slurm")


def _gres_lines(inside: Inside | None) -> tuple[str, ...]:
    lines = inside.errors if inside else ()
    return tuple(line for line in lines if "gres" in line.lower())[-3:]


def _low(known: CheckInput, found: tuple[Node, ...]) -> Verdict:
    bad = [
        node
        for node in found
        if node.is_for("too_little") and (node.invalid or (node.drained and node.who is None))
    ]
    if not bad:
        return fine()
    inside = known.observed.inside
    evidence = []
    if inside and inside.node_real_memory_mib is not None:
        limit = inside.memory_limit_mib
        has = f", the container has {limit} MiB" if limit is not None else ""
        evidence.append(f"slurm.conf: RealMemory={inside.node_real_memory_mib}{has}")
    if inside and inside.node_cpus is not None:
        has = f", the container has {inside.cpus}" if inside.cpus is not None else ""
        evidence.append(f"slurm.conf: CPUs={inside.node_cpus}{has}")
    fixes = [reconfigure("Let Slurm know what the node has now; running jobs are not affected")]
    if own_file(known, "slurm.conf"):
        right = Fix("Correct the NodeName line of your own config/slurm.conf: the right one is in",
                    "dshpc exec -- slurmd -C")  # fmt: skip
        fixes.insert(0, right)
    return fault(
        "The node has less memory, CPUs or disk than its line in slurm.conf says, and Slurm drained it.",
        *map(described, bad),
        *evidence,
        fix=tuple(fixes),
    )


def _down(_: CheckInput, found: tuple[Node, ...]) -> Verdict:
    bad = [node for node in found if node.down]
    if not bad:
        return fine(*map(described, found))
    node = bad[0]
    if len(found) > 1 and (stopped := [each for each in bad if each.stopped]):
        names = listed(tuple(each.name for each in stopped))
        return fault(
            f"The container of {names} does not run: it was stopped. The other nodes take jobs.",
            *map(described, bad),
            fix=tuple(Fix("Start it", f"dshpc node resume {quote(each.name)}") for each in stopped),
        )
    if any(each.has_former_key for each in bad):
        return _with_former_key(bad)
    if len(found) > 1 and node.silent:
        return fault(
            f"slurmd, Slurm's daemon on {node.name}, does not answer the controller. The other nodes "
            "take jobs.",
            *map(described, bad),
            fix=(
                Fix(
                    "See what it says",
                    f"dshpc logs --node {quote(node.name)} --tail 50",
                    step="look",
                ),
                Fix("Start it, where it does not run", f"dshpc node resume {quote(node.name)}"),
            ),
        )
    if node.by_a_person and not node.silent:
        cause = f"{node.who} set it down, with the reason: {node.reason}. dshpc leaves it so."
        return warning(cause, *map(described, bad), fix=resume(node))
    if node.silent:
        cause = "slurmd, Slurm's daemon on the node, does not answer the controller."
        return fault(
            cause,
            *map(described, bad),
            fix=(LOG, reconfigure("Restart the daemons; running jobs are not affected")),
        )
    cause = "The node is down, and slurmd answers: it only has to be taken back."
    return fault(cause, *map(described, bad), fix=resume(node, automatic=node.over))


def _invalid(_: CheckInput, found: tuple[Node, ...]) -> Verdict:
    bad = [node for node in found if node.invalid]
    if not bad:
        return fine()
    return fault(
        "The controller refused what slurmd reported of the node (INVALID_REG): it differs from its line in "
        "slurm.conf. No job can start there, and a resume does not help.",
        *map(described, bad),
        fix=(reconfigure(),),
    )


_LEFT = Fix(
    "See what is left of it", "dshpc exec --root -- ps -eo pid,ppid,stat,user,comm", step="look"
)
_NEEDS = (RUNS, CONTROLLER)
_REASONS = ("DSH-SL-013", "DSH-SL-014", "DSH-SL-015", PROLOG, "DSH-SL-017")

NODE_CHECKS: tuple[Check, ...] = (
    Check("DSH-SL-013", "slurm", "The node has the GPUs that Slurm is configured for",
          "The node has fewer GPUs than Slurm is configured for", _of_nodes(_fewer_gpus),
          needs=_NEEDS, because=(NOT_IN_CONTAINER, "DSH-SL-036", "DSH-NV-020", "DSH-SL-020")),
    Check("DSH-SL-014", "slurm", "The node has the memory and CPUs that Slurm is configured for",
          "The node was drained for too little memory or CPUs", _of_nodes(_low), needs=_NEEDS),
    Check("DSH-SL-015", "slurm", "Jobs' processes end when they are told to",
          "The node was drained because a job could not be killed",
          _drained_for("kill_failed",
                       "A job's processes did not end when they were killed: they hang in the kernel, "
                       "most often in a GPU driver or a network file system (state D).",
                       _LEFT, Fix("If they stay, the machine has to be restarted")),
          needs=_NEEDS, because=("DSH-NV-022", "DSH-NV-020")),
    Check(PROLOG, "slurm", "Prolog and epilog succeed",
          "The node was drained because a prolog or epilog failed", prolog, needs=(RUNS,),
          because=(PROGRAMS,)),
    Check("DSH-SL-017", "slurm", "Batch jobs can be launched",
          "The node was drained because a batch job could not be launched",
          _drained_for("launch_failed",
                       "slurmd could not launch a batch job, or could not tell how it ended: often a full "
                       "disk, a missing home folder or processes that cannot be killed.",
                       LOG), needs=_NEEDS, because=("DSH-SL-027",)),
    Check(INVALID, "slurm", "Slurm accepts the node as it is",
          "The node is INVAL: Slurm refuses it as it is", _of_nodes(_invalid), needs=_NEEDS,
          because=("DSH-SL-013", "DSH-SL-014")),
    Check(DRAINED, "slurm", "The node is not drained", "The node is drained", _of_nodes(_drained),
          needs=_NEEDS, because=(*_REASONS, INVALID)),
    Check(DOWN, "slurm", "The node is up", "The node is down, or does not respond",
          _of_nodes(_down), needs=_NEEDS, because=(NODE_DAEMON_UP, "DSH-SL-032", "DSH-SL-026", *ACROSS)),
)  # fmt: skip
