"""By which mechanism the GPUs are handed over: the one named, the one proven before, or one tested now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dshpc_setup import gpu_vendors, passthrough, probes
from dshpc_setup.compose_patch.command import ChosenHandover
from dshpc_setup.errors import DshpcError, usage_error
from dshpc_setup.facts import Engine, HostFacts, Vendor
from dshpc_setup.machine import Machine
from dshpc_setup.machine.overlay import with_simulated_gpus
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.passthrough.candidates import candidates
from dshpc_setup.passthrough.handover import MECHANISMS, Handover, Mechanism
from dshpc_setup.passthrough.testrun import RunOptions, test_run
from dshpc_setup.plan import plan_cluster
from dshpc_setup.project.folder import PROOF, Project, find_project
from dshpc_setup.render.gpu_stanza import compose_version
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_/=-]*")


def mechanism_of(text: str) -> Mechanism:
    """The mechanism of that name; raises DshpcError (usage)."""
    for each in MECHANISMS:
        if each == text:
            return each
    raise usage_error(
        f"--mechanism {text}: there is no such mechanism.",
        "",
        f"Choose one: {', '.join(MECHANISMS)}.",
    )


def devices_of(text: str | None) -> tuple[str, ...]:
    """ "0,2" as ids, in the order given; raises DshpcError (usage)."""
    ids = tuple(dict.fromkeys(part.strip() for part in (text or "").split(",")))
    if text is None:
        return ()
    wrong = [each for each in ids if not _ID.fullmatch(each)]
    if wrong or not ids:
        raise usage_error(
            f"--devices {text}: {wrong[0]!r} is no GPU.", "", "Give numbers or UUIDs: --devices 0,2"
        )
    return ids


def named(machine: Machine, mechanism: Mechanism, ids: tuple[str, ...]) -> ChosenHandover:
    """The mechanism as it is named, for the GPUs as they are named; no engine is asked.

    The machine says whose GPUs they are (NVIDIA's where it has none), and of AMD's and Intel's the
    device nodes and their groups. Raises DshpcError where it lacks what the mechanism needs.
    """
    facts = probes.gather(machine, engine=False)
    vendor = _vendor(facts)
    known = f"Chosen with --mechanism for GPUs of {gpu_vendors.label(vendor)}, not tested."
    if mechanism == "devices":
        return ChosenHandover(_device_nodes(facts, ids), "Chosen with --mechanism, not tested.")
    maker = gpu_vendors.of(vendor)
    if not maker.runtimes and mechanism != "cdi":
        raise usage_error(
            f"--mechanism {mechanism} does not hand over {maker.label}'s GPUs.",
            "",
            "Use --mechanism devices, or cdi.",
        )
    groups = {
        group for gpu in facts.gpus.devices for group in gpu.group_ids if gpu.vendor == vendor
    }
    group_add = tuple(sorted(groups - {0})) if maker.nodes_suffice else ()
    if mechanism == "cdi":
        names = tuple(
            each if "=" in each else f"{maker.cdi_kind}={each}" for each in ids or ("all",)
        )
        return ChosenHandover(Handover("cdi", ids=names, group_add=group_add), known)
    return ChosenHandover(Handover(mechanism, ids=ids, driver=vendor, group_add=group_add), known)


def _vendor(facts: HostFacts) -> Vendor:
    there = {gpu.vendor for gpu in facts.gpus.devices}
    known = gpu_vendors.names()
    return next((vendor for vendor in known if vendor in there), known[0])


def _device_nodes(facts: HostFacts, ids: tuple[str, ...]) -> Handover:
    if not facts.gpus.devices:
        raise DshpcError(
            "--mechanism devices needs the machine whose GPUs they are, and none was found here.",
            facts.gpus.detail or f"GPUs: {facts.gpus.state}",
            (
                "Run this on that machine.",
                "Or record it there (dshpc record DIR) and name the record: --machine DIR.",
            ),
        )
    plan = plan_cluster(facts, replace(Settings(), devices=ids))
    if not plan.gres:
        why = plan.left_out[0] if plan.left_out else "None of its GPUs can be used."
        raise DshpcError("There is no GPU to hand over.", why, ("See: dshpc detect",))
    row = next(row for row in candidates(facts, plan, not ids) if row.mechanism == "devices")
    if row.handover is None:
        raise usage_error(
            f"--mechanism devices does not work for these GPUs: {row.reason}.",
            "",
            "Use --mechanism cdi, device-request or runtime.",
        )
    return row.handover


def project_at(places: Sequence[Path], env: Mapping[str, str]) -> Project:
    """The project at or above the first of the places that has one; else an empty one at the first.

    What it remembers becomes lines of the file: raises DshpcError where others could have written it.
    """
    found = (find_project(place, env) for place in places)
    own = next((each for each in found if each is not None and each.foreign is None), None)
    if own is None:
        return Project(places[0])
    own.need_own()
    return own


def proven(
    machine: Machine,
    project: Project,
    ids: tuple[str, ...],
    reporter: Reporter,
    *,
    replayed: bool = False,
) -> ChosenHandover:
    """The mechanism that works on this machine: remembered by the project, else tested now.

    Of a recorded machine it is the best that its engine may have, untested. Raises DshpcError where
    none works.
    """
    settings = project.settings(machine.env)
    settings = replace(settings, devices=ids) if ids else settings
    facts = probes.gather(with_simulated_gpus(machine, settings.simulate))
    plan = plan_cluster(facts, settings)
    compose = _oldest(facts.engine)
    remembered = Passthrough.from_json(project.read_note(PROOF))
    key = passthrough.proof_key(facts, plan, not settings.devices)
    files = passthrough.of_driver(machine, facts)
    same = remembered is not None and remembered.works and remembered.key == key
    if remembered and same and passthrough.still_holds(remembered, facts, plan, files):
        return ChosenHandover(remembered.handover, remembered.reason, compose)
    reporter.progress("testing how the GPUs reach a container")
    wish = RunOptions(settings, every=False, replayed=replayed, facts=facts)
    run = test_run(machine, wish, reporter)
    if not run.passthrough.works:
        raise _none_works(run.passthrough, run.facts)
    return ChosenHandover(run.passthrough.handover, run.passthrough.reason, compose)


def _oldest(engine: Engine) -> str | None:
    """The version of the oldest compose that is installed: what it reads, the others read as well."""
    there = [item.version for item in (engine.compose, *engine.composes) if item is not None]
    return min(there, key=lambda version: compose_version(version) or (0, 0), default=None)


def _none_works(found: Passthrough, facts: HostFacts) -> DshpcError:
    fix = found.to_fix
    steps = [str(fix) for fix in fix.fix] if fix is not None else []
    why: Sequence[str] = [f"{row.mechanism}: {row.reason}" for row in found.attempts]
    known = "this machine has no GPU" if not facts.gpus.devices else "none reaches a container"
    return DshpcError(
        f"There is no GPU to hand over here: {known}.",
        "\n".join(why or [found.reason]),
        (
            *steps,
            "See each mechanism: dshpc passthrough",
            "For another machine, name its mechanism: --mechanism cdi or device-request.",
        ),
    )
