"""The step "probe" of a run: the facts of the machine, with an engine that is ready."""

from __future__ import annotations

from dshpc_setup import probes
from dshpc_setup.cluster.owner import refuse_others
from dshpc_setup.engine import refusals, tools
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.settings import Settings
from dshpc_setup.setup.describe import (
    describe_facts,
    describe_mapping,
    describe_missing,
)
from dshpc_setup.setup.run import Run


def probe(run: Run, settings: Settings) -> HostFacts:
    with run.steps.step("probe") as say:
        machine = with_simulated_gpus(run.given, settings.simulate)
        if run.options.dry_run:
            facts = _seen(run, machine)
        else:
            facts = tools.ready(
                run.given, machine, run.reporter, interactive=run.options.interactive
            )
        run.report.simulated = facts.gpus.simulated
        say(describe_facts(facts))
        if facts.engine.state == "present" and run.options.replayed is None:
            refuse_others(run.machine, run.project, settings, take_over=run.options.take_over)
        if (mapped := describe_mapping(facts.engine)) is not None:
            run.steps.note(mapped)
        return facts


def _seen(run: Run, machine: Machine) -> HostFacts:
    """For a dry run: nothing is installed, and a recorded machine answers no other the second time."""
    if run.options.replayed is not None:
        facts = probes.gather(machine)
    else:
        facts = probes.gather_surely(machine, run.reporter.progress)
    if refused := refusals.unfit(facts):
        raise refused
    if facts.engine.state != "present" or facts.engine.compose is None:
        run.steps.note(f"{describe_missing(facts)} A real run would see to it.")
    return facts
