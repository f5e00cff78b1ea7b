"""What the checks of the cluster ask again and again: the nodes, who drained them, ids."""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote

from dshpc_setup.diagnose.common import cluster
from dshpc_setup.diagnose.model import CheckInput, Verdict, not_here, unknown
from dshpc_setup.errors import Fix, Step, configure
from dshpc_setup.observed.model import ContainerSeen, Inside
from dshpc_setup.slurm.blocked_jobs import MOST, Stuck
from dshpc_setup.slurm.nodes import Node, joined, parse_lines
from dshpc_setup.terminal import sanitize

RUNS = "DSH-SL-001"
CONTROLLER = "DSH-SL-008"
CONTROLLER_UP = "DSH-SL-009"
NODE_DAEMON_UP = "DSH-SL-010"
DRAINED = "DSH-SL-012"
DOWN = "DSH-SL-018"
INVALID = "DSH-SL-019"
NOT_IN_CONTAINER = "DSH-SL-022"
KEY = "DSH-SL-026"
STATE_VOLUME = "DSH-SL-027"
LOST_SINCE = "DSH-SL-038"
PROLOG = "DSH-SL-016"
PROGRAMS = "DSH-SL-050"
ACROSS = ("DSH-SL-061", "DSH-SL-062", "DSH-SL-063", "DSH-SL-064")
"""What keeps one of several nodes from registering."""


def of_inside(look: Callable[[CheckInput, Inside], Verdict]) -> Callable[[CheckInput], Verdict]:
    """A look at what the container says of itself; skipped where it could not be asked."""

    def looked(known: CheckInput) -> Verdict:
        inside = known.observed.inside
        if inside is None:
            return unknown(known.observed.inside_problem or "The container was not asked.")
        return look(known, inside)

    return looked


def of_container(
    look: Callable[[CheckInput, ContainerSeen], Verdict],
) -> Callable[[CheckInput], Verdict]:
    """A look at the container as the engine describes it, running or not."""

    def looked(known: CheckInput) -> Verdict:
        seen, found = known.observed.container, known.observed.cluster
        if seen is not None and seen.status != "missing":
            return look(known, seen)
        if found is None:
            return not_here("No cluster is set up in this folder.")
        if found.state == "missing":
            return not_here(f"There is no container {found.container}.")
        return unknown("The engine was not asked about the container.")

    return looked


def before_ready(known: CheckInput) -> bool:
    """Whether the start has not come to its end: what is not there may still come."""
    found = cluster(known)
    return found.phase != "ready" and not found.problem


def nodes(known: CheckInput) -> tuple[Node, ...]:
    """The controller's nodes; from inside it is known who set their reasons, too."""
    inside = known.observed.inside
    return joined(cluster(known).nodes, parse_lines(inside.node_lines if inside else ()))


def described(node: Node) -> str:
    """ "lab: drained, because: hot (set by ada)"."""
    because = f", because: {node.reason}" if node.reason else ""
    by = f" (set by {node.who})" if because and node.who else ""
    return f"{node.name}: {node.state}{because}{by}"


def resume(node: Node, *, automatic: bool = False) -> tuple[Fix, ...]:
    """What takes a drained node back: Slurm lets only root and its own user do so."""
    return (
        Fix(
            "Take the node back into use",
            f"dshpc exec --root -- scontrol update NodeName={quote(node.name)} State=RESUME",
            automatic=automatic,
            repair=("resume-node", "") if automatic else None,
        ),
    )


def release(
    jobs: tuple[Stuck, ...], text: str = "Let them run", step: Step = "do"
) -> tuple[Fix, ...]:
    """What lets held jobs go; one that its user did not hold is root's to release."""
    if not jobs:
        return ()
    ids = ",".join(job.job.partition("_[")[0] for job in jobs[:MOST])
    return (Fix(text, f"dshpc exec --root -- scontrol release {quote(ids)}", step=step),)


def reconfigure(
    text: str = "Let the cluster see the machine as it is now; running jobs are not affected",
    step: Step = "do",
) -> Fix:
    return Fix(text, "dshpc reconfigure", automatic=True, step=step, repair=("reconfigure", ""))


def restart(
    text: str = "Restart the cluster; queued jobs stay, those that run are interrupted",
    step: Step = "do",
) -> Fix:
    return Fix(text, "dshpc restart", step=step)


def own_file(known: CheckInput, name: str) -> bool:
    """Whether such a file of the configuration in force is the user's own."""
    files = cluster(known).files or {}
    return files.get(name) in ("custom", "edited")


def correct_lines(known: CheckInput, what: str) -> tuple[Fix, ...]:
    """Another way than to repair a program: its line, where that is set; reconfigure reads no settings.

    Where the last good files are in force it is not known whose slurm.conf is.
    """
    own = Fix(
        f"Or correct {what} in your own config/slurm.conf, and put it into effect; jobs keep running",
        "dshpc reconfigure",
        step="alternative",
    )
    of_setting = (
        Fix(
            f"Or correct {what} in the setting slurm_conf_extra (dshpc.yaml), or take all lines of that "
            "setting out",
            "dshpc config unset slurm_conf_extra",
            step="alternative",
        ),
        configure("Then put it into effect", step="after"),
    )
    files = cluster(known).files or {}
    if files.get("slurm.conf") is None:
        return (own, *of_setting)
    return (own,) if own_file(known, "slurm.conf") else of_setting


def gpus_inside(known: CheckInput) -> int | None:
    """How many GPUs the container sees; None where nobody could tell."""
    inside = known.observed.inside
    if inside is None or inside.gpus_state in ("timeout", "error", "denied"):
        return None
    return len(inside.gpus)


LOG = Fix("Look at what the daemons say", "dshpc logs --tail 50", step="look")
NODE = Fix("See the node as Slurm sees it", "dshpc scontrol show node", step="look")


def counted(count: int, one: str) -> str:
    """ "1 GPU", "2 GPUs", "no GPU"."""
    return sanitize.counted(count, one) if count else f"no {one}"
