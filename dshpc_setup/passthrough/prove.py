"""Try the mechanisms and take the best that works; remember what the proof was made for.

What tries them is imported where it is done: doctor and all that reads a proof have no use for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dshpc_setup import gpu_vendors
from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.passthrough.handover import Handover, Mechanism
from dshpc_setup.passthrough.key import proof_key
from dshpc_setup.passthrough.model import Attempt, Cause, Passthrough
from dshpc_setup.terminal.sanitize import counted

if TYPE_CHECKING:
    from dshpc_setup.facts import HostFacts
    from dshpc_setup.machine import Machine
    from dshpc_setup.passthrough.bench import Bench
    from dshpc_setup.passthrough.driver_files import DriverFiles
    from dshpc_setup.passthrough.expected import Expected
    from dshpc_setup.passthrough.image import Unmet
    from dshpc_setup.plan import ClusterPlan

NOTHING = Handover("none")


def without_test(plan: ClusterPlan, simulated_files: tuple[str, ...]) -> Passthrough | None:
    """Where nothing is to be tested: no GPU, or made-up ones, which are names of /dev/null."""
    if plan.simulated and plan.gres:
        wanted = {file for line in plan.gres for file in line.files}
        shared = {node for each in gpu_vendors.all_of_them() for node in each.nodes.shared}
        nodes = tuple(file for file in simulated_files if file in wanted or file in shared)
        return Passthrough(
            Handover("simulated", devices=tuple(f"/dev/null:{node}" for node in nodes)),
            "GPUs are simulated: their device nodes are names of /dev/null.",
        )
    if not plan.gres:
        return Passthrough(NOTHING, plan.left_out[0] if plan.left_out else "No GPU was found.")
    return None


def untested(
    facts: HostFacts, plan: ClusterPlan, whole: bool, reason: str, files: DriverFiles | None = None
) -> Passthrough:
    """The best mechanism that this engine may have, unproven: for a run that starts no container.

    Where it can have none the reason says why, in place of `reason`.
    """
    from dshpc_setup.passthrough.candidates import candidates

    rows = candidates(facts, plan, whole, files)
    first = next((row.handover for row in rows if row.handover is not None), None)
    if first is not None:
        return Passthrough(first, reason, rows)
    none = Passthrough(NOTHING, "", rows)
    return replace(none, reason=why_none(none))


def prove(
    machine: Machine,
    facts: HostFacts,
    plan: ClusterPlan,
    bench: Bench,
    *,
    whole: bool = True,
    every: bool = False,
) -> Passthrough:
    """Try the mechanisms that this engine may have, best first, until one works; `every`: all.

    Never raises for a mechanism that fails: the reasons are in the rows. An image that wants more than
    the driver offers is not started by a mechanism that would refuse it. After a container that hung
    no other is started: a driver that hangs once hangs again.
    """
    found = _proven(machine, Case(facts, plan, bench, whole), every=every)
    if whole and _has_more(found):
        by_name = _proven(machine, Case(facts, plan, bench, whole=False), every=every)
        found = by_name if by_name.works else found
    return replace(found, key=proof_key(facts, plan, whole), user=bench.user)


def of_driver(machine: Machine, facts: HostFacts) -> DriverFiles | None:
    """What the built-in engine binds; None for another engine, which is told by name, and made-up GPUs."""
    if facts.engine.kind != BUILTIN or facts.gpus.simulated:
        return None
    from dshpc_setup.passthrough.driver_files import driver_files

    return driver_files(machine, facts)


def still_holds(
    kept: Passthrough, facts: HostFacts, plan: ClusterPlan, files: DriverFiles | None
) -> bool:
    """Of a proof whose key is today's, also whether the same files of the driver would be bound."""
    if files is None:
        return True
    from dshpc_setup.passthrough.driver_files import as_proven
    from dshpc_setup.passthrough.wanted import WantedGpus

    return as_proven(files, WantedGpus(facts, plan), kept.handover)


@dataclass(frozen=True)
class Case:
    """What is tried, on which machine; `whole`: the GPUs may be asked for as "all"."""

    facts: HostFacts
    plan: ClusterPlan
    bench: Bench
    whole: bool


def _has_more(found: Passthrough) -> bool:
    """Whether "all" was too much: this process is in a container or a job that has but some GPUs."""
    from dshpc_setup.passthrough import findings

    return not found.works and any(row.finding == findings.MORE_GPUS for row in found.failures)


def _proven(machine: Machine, case: Case, *, every: bool) -> Passthrough:
    """The outcome, without its key."""
    from dshpc_setup.passthrough.candidates import candidates
    from dshpc_setup.passthrough.expected import expect
    from dshpc_setup.passthrough.image import enforces, unmet

    facts, plan = case.facts, case.plan
    wishes: dict[Mechanism, tuple[Unmet, ...]] = {}
    rows = []
    for row in candidates(facts, plan, case.whole, of_driver(machine, facts)):
        enforced = enforces(facts, row.mechanism)
        wish = unmet(case.bench.environment, facts, plan.gpus, enforced=enforced)
        wishes[row.mechanism] = wish
        rows.append(_against(row, wish))
    expected = expect(facts, plan, case.whole, _numbers(machine, facts, plan))
    tried = _tried(machine, case, tuple(rows), expected, every=every)
    chosen = next((row for row in tried if row.state == "works"), None)
    if chosen is None or chosen.handover is None:
        none = Passthrough(NOTHING, "", tried, warnings=_warnings(wishes[rows[0].mechanism]))
        return replace(none, reason=why_none(none))
    count = counted(expected.count, "GPU")
    reason = f"Proven by a test container: {count} by {chosen.way}."
    warnings = _warnings(wishes[chosen.mechanism])
    return Passthrough(chosen.handover, reason, tried, warnings=warnings)


def _against(row: Attempt, wishes: tuple[Unmet, ...]) -> Attempt:
    """The row, failed where the image wants what cannot be had."""
    refused = next((item.cause for item in wishes if item.severity == "error"), None)
    return row if row.handover is None or refused is None else row.failed(refused)


def _warnings(wishes: tuple[Unmet, ...]) -> tuple[Cause, ...]:
    return tuple(item.cause for item in wishes if item.severity == "warn")


def why_none(none: Passthrough) -> str:
    """The cause to fix first; without its mechanism where all have the same."""
    if len({row.reason for row in none.attempts}) == 1:
        return f"{none.attempts[0].reason}."
    worst = none.to_fix or none.attempts[0]
    return f"{worst.way}: {worst.reason}."


def _numbers(machine: Machine, facts: HostFacts, plan: ClusterPlan) -> dict[str, tuple[int, int]]:
    """This machine's device numbers of the nodes in question, of those that are there."""
    from dshpc_setup.passthrough.expected import node_paths

    told = {path: machine.device_number(path) for path in node_paths(facts, plan)}
    return {path: number for path, number in told.items() if number is not None}


def _tried(
    machine: Machine,
    case: Case,
    rows: tuple[Attempt, ...],
    expected: Expected,
    *,
    every: bool,
) -> tuple[Attempt, ...]:
    from dshpc_setup.passthrough import findings
    from dshpc_setup.passthrough.trial import attempt

    done: list[Attempt] = []
    over: str | None = None  # why no more containers are started
    for row in rows:
        if row.state != "untested":
            done.append(row)
            continue
        if over is not None:
            done.append(replace(row, reason=f"{row.reason}: {over}"))
            continue
        now = attempt(machine, case.facts, row, expected, case.bench)
        done.append(now)
        if now.finding == findings.TEST_HUNG:
            over = f"the test of {row.way} hung"
        elif now.state == "works" and not every:
            over = f"{row.way} works"
    return tuple(done)
