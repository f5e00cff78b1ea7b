"""What a run cannot do without: an engine, compose and a builder that answer, made sure of early."""

from __future__ import annotations

from dshpc_setup import probes
from dshpc_setup.engine import refusals
from dshpc_setup.engine.install import ensure_engine
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.machine.longer_deadlines import patient
from dshpc_setup.machine.no_answer import AGAIN
from dshpc_setup.terminal.reporter import Reporter

_NAMES = {"compose": "Docker Compose", "buildx": "The image builder, docker buildx,"}
_SEE = {
    "compose": "docker compose version; docker-compose version",
    "buildx": "docker buildx version",
}


def ready(machine: Machine, seen: Machine, reporter: Reporter, *, interactive: bool) -> HostFacts:
    """The facts of a machine on which engine, compose and builder have answered.

    What is missing is installed and started, asking first; `seen`: the machine as the settings want it
    seen. Raises DshpcError where one of them is not to be had, or does not answer (INCOMPLETE): what
    comes after this takes long, and cannot do without.
    """
    facts = probes.gather_surely(seen, reporter.progress)
    if facts.engine.by_command and facts.engine.state != "present":
        raise refusals.podman_silent(facts.engine)
    answered = facts.engine.state == "present"  # else what is missing is told, or installed, first
    if (answered or facts.forbidden or facts.without_engine) and (refused := refusals.unfit(facts)):
        raise refused
    if answered:
        refuse_silent(facts, "compose")
    outcome = ensure_engine(patient(machine), facts, reporter, interactive=interactive)
    if outcome.changed:
        facts = probes.gather_surely(seen, reporter.progress)
    if facts.engine.state == "timeout":
        raise refusals.hangs(facts.engine)
    if facts.engine.state != "present":
        brief = f"Docker was installed and started, but does not answer ({facts.engine.state})"
        raise DshpcError(
            brief, facts.engine.detail or "", ("See: docker version",), Exit.INCOMPLETE
        )
    refuse_silent(facts, "compose")
    if facts.engine.compose is None:
        brief = "Docker Compose was installed, but neither way of calling it works"
        raise DshpcError(brief, _said(facts, "compose"), (f"See: {_SEE['compose']}",))
    if facts.engine.kind != "podman":
        refuse_silent(facts, "buildx")
    return facts


def refuse_silent(facts: HostFacts, tool: str) -> None:
    """Raises DshpcError where the tool is not known to be there because it did not answer in time."""
    there = facts.engine.compose if tool == "compose" else facts.engine.buildx
    if there is not None or not facts.late(tool):
        return
    raise DshpcError(
        f"{_NAMES[tool]} did not answer in time; whether it is installed is not known.",
        _said(facts, tool),
        (f"See whether it answers: {_SEE[tool]}", *AGAIN),
        Exit.INCOMPLETE,
    )


def _said(facts: HostFacts, tool: str) -> str:
    return "\n".join(
        f"{item.source}: {item.detail or item.state}"
        for item in facts.evidence
        if item.probe == tool
    )
