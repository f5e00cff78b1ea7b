"""What doctor reports of a look: the findings that were asked for, and what is to be said of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dshpc_setup.diagnose import CheckInput, catalogue, diagnose
from dshpc_setup.diagnose.model import Check, Section
from dshpc_setup.diagnose.report import CONTAINER, Report
from dshpc_setup.facts import SECTIONS as FACTS
from dshpc_setup.facts import Section as Fact
from dshpc_setup.facts import Unanswered
from dshpc_setup.observed.model import Observed

# The facts that the checks of a section are about
_ABOUT: dict[str, tuple[Fact, ...]] = {
    "host": ("platform", "cpu", "memory"),
    "gpu": ("gpus",),
    "driver": ("gpus",),
    "engine": ("docker",),
    "passthrough": ("gpus", "docker"),
    "slurm": ("docker",),
    "files": (),
}


def of(
    known: CheckInput,
    checks: Sequence[Check] | None = None,
    *,
    strict: bool = False,
    recorded: bool = False,
) -> Report:
    """All checks are made, for what they may explain; those that were asked for are reported.

    Without `checks` these are all. `recorded`: the machine is another than the one that we run on.
    """
    every = diagnose(known)
    checks = catalogue() if checks is None else checks
    wanted = {check.id for check in checks}
    sections = {check.section for check in checks}
    about = {fact for section in sections for fact in _ABOUT[section]}
    return Report(
        tuple(finding for finding in every if finding.id in wanted),
        every,
        (
            *known.facts.unanswered([fact for fact in FACTS if fact in about]),
            *(_silent_container(known.observed) if "slurm" in sections else ()),
        ),
        strict,
        notes=tuple(_notes(known, sections, recorded=recorded)),
    )


def _silent_container(seen: Observed) -> tuple[Unanswered, ...]:
    """The cluster's container where it runs and did not say how it is: half of the checks are skipped."""
    container, why = seen.container, seen.inside_problem
    if container is None or container.status != "running" or seen.inside is not None or not why:
        return ()
    return (Unanswered(CONTAINER, "timeout", why),)


def _notes(known: CheckInput, sections: set[Section], *, recorded: bool) -> Iterator[str]:
    """What there is to be known of the whole, where sections are shown that it is about."""
    seen, cluster = known.observed, known.observed.cluster
    if known.facts.gpus.simulated or (cluster is not None and cluster.simulated):
        yield "The GPUs are SIMULATED: made up, no job computes on them."
    if cluster is not None or not sections & {"slurm", "files"}:
        return
    if recorded and seen.version is None:
        yield "Only a machine was recorded: of its cluster and its files nothing is known."
    elif recorded:
        yield "No cluster was set up where this was recorded."
    elif seen.project is None:
        yield "No cluster is set up in this folder or above it."
    else:
        yield f"No cluster is set up in {seen.project}."
