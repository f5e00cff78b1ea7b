"""What a start says at its end, in the log and in the status."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dshpc_setup.container import drift as drift_module
from dshpc_setup.container.config import Candidate
from dshpc_setup.container.drift import Change
from dshpc_setup.container.run import Run
from dshpc_setup.container.status import Status
from dshpc_setup.errors import DshpcError, Fix, words_of

if TYPE_CHECKING:
    from dshpc_setup.plan import ClusterPlan


def drift(status: Status, changes: Iterable[Change]) -> None:
    """What changed since the last start, as one block of the log, and in the status."""
    changes = tuple(changes)
    status.values.update(
        changes=[item.sentence for item in changes], drift=[item.to_json() for item in changes]
    )
    text = drift_module.as_text(changes)
    if text:
        status.say(text)


def failed(status: Status, error: DshpcError) -> None:
    status.failed(error)
    say = status.say
    since = drift_module.as_text(
        Change(item["what"], item["was"], item["is"]) for item in status.values["drift"]
    )
    if since:
        say(since)
    say("The start FAILED. The container stays up so that you can look into it.")
    say(f"What:  {error.brief}")
    for line in error.details.splitlines():
        say(f"Why:   {line}")
    for line in error.resolution:
        say(f"To do: {line}")


def defect(error: Exception) -> DshpcError:
    return DshpcError(
        "The start stopped at a defect of dsHPC setup itself.",
        words_of(error),
        (Fix("Please report it with the output of", "dshpc logs"),),
    )


def ready(run: Run, plan: ClusterPlan, candidate: Candidate, summary: str) -> None:
    """The cluster in a few lines: what is in force, whose it is, and how the proof went."""
    status, say = run.status, run.status.say
    own = [f"{name} is yours ({how})" for name, how in candidate.customized.items()]
    simulated = " (SIMULATED: made up, no job computes on them)" if plan.simulated else ""
    say(f"Cluster {plan.cluster}, partition {plan.partition}, node {status.values['node']}")
    say(f"  CPUs   {plan.cpus}, memory for jobs {plan.real_memory_mib} MiB")
    say(f"  GPUs   {status.values['gres'] or 'none'}{simulated}")
    for reason in plan.left_out:
        say(f"         {reason}")
    if status.values["kept_last_good"]:
        own = ["the last good ones: see above what is wrong with the new ones"]
    say(f"  Files  {', '.join(own) if own else 'all rendered from what was found'}")
    say(f"  Proof  {summary}")
    say(f"Ready after {status.elapsed_ms:.0f} ms.")
