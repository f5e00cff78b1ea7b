"""What doctor would know after a test-run that was refused, with the words that engines really say."""

from __future__ import annotations

from dataclasses import replace

from dshpc_setup.diagnose import CheckInput
from dshpc_setup.facts import HostFacts
from dshpc_setup.machine import CommandResult
from dshpc_setup.passthrough import Attempt, Cause, Passthrough, proof_key
from dshpc_setup.passthrough.causes import of_refusal
from dshpc_setup.passthrough.expected import expect
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.passthrough.judge import judge
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import Settings
from tests.unit.passthrough.made import amd, card, ended, facts
from tests.unit.passthrough.refusals import CASES, MACHINES, Case


def refused(finding: str) -> CheckInput:
    """By the first text of tests/unit/passthrough/refusals.py that is this finding."""
    return of_case(next(case for case in CASES if case.finding == finding))


def beside(finding: str) -> CheckInput:
    """By the near miss of it: the next text in that file that is none of the catalogue, or another."""
    first = next(index for index, case in enumerate(CASES) if case.finding == finding)
    after = [case for case in CASES[first:] if case.finding != finding]
    return of_case(next((case for case in after if case.finding is None), after[0]))


def of_case(case: Case) -> CheckInput:
    """A machine with one GPU whose engine refused the container with this text."""
    on = MACHINES[case.on]
    gpu = amd(0) if on.gpus.vendor == "amd" else card(0)
    found = replace(facts(gpu, engine=on.engine), platform=on.platform)
    cause = of_refusal(case.text, case.mechanism, on)
    row = Attempt(case.mechanism, "untested", "", handover=Handover(case.mechanism))
    return after_test(found, row.failed(cause or Cause(None, "the engine refused"), case.text))


def looked(said: str | CommandResult, found: HostFacts, way: Handover) -> CheckInput:
    """The test container of these GPUs ran, and this is what it said from inside."""
    plan = plan_cluster(found, Settings())
    result = ended(0, said) if isinstance(said, str) else said
    cause = judge(result, expect(found, plan, True, {}), way, found, 60.0)
    row = Attempt(way.mechanism, "untested", "", handover=way)
    if cause is None:
        return after_test(found, replace(row, state="works", reason="the GPU was seen and opened"))
    return after_test(found, row.failed(cause, result.text))


def after_test(found: HostFacts, *rows: Attempt, warnings: tuple[Cause, ...] = ()) -> CheckInput:
    """With a proof of this machine as it is; the first row that works is taken."""
    plan = plan_cluster(found, Settings())
    works = next((row.handover for row in rows if row.state == "works"), None)
    proof = Passthrough(
        works or Handover("none"), "Tested.", rows, proof_key(found, plan, True), warnings
    )
    return CheckInput(found, plan=plan, proof=proof)
