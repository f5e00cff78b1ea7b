"""What configure-environment would write now, found out without its test container and its image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from dshpc_setup import passthrough
from dshpc_setup.apply.apply import read_text
from dshpc_setup.apply.owned import OWNABLE
from dshpc_setup.engine.compose import FILE as COMPOSE_FILE
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.files.ownership import digest
from dshpc_setup.machine.overlay import simulated_device_files
from dshpc_setup.passthrough import Passthrough
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.plan import ClusterPlan, plan_cluster
from dshpc_setup.project.folder import PROOF, RENDERED, Project
from dshpc_setup.render import gpu_part, stanza
from dshpc_setup.render.configuration import CONFIG_FILES, inputs, render_env, render_slurm
from dshpc_setup.render.labels import RENDERED_LABEL
from dshpc_setup.settings import Settings
from dshpc_setup.slurm import slurm_conf


@dataclass(frozen=True)
class Renderings:
    """The texts that would do: several for a file where no test-run has decided yet."""

    texts: Mapping[str, tuple[str, ...]]  # path in the project folder -> texts
    gpus: tuple[tuple[str, ...], ...] = ()  # GPU parts of docker-compose.yml, the best one first


def made_now(
    project: Project,
    facts: HostFacts,
    settings: Settings,
    plan: ClusterPlan,
    workers: Sequence[stanza.Worker] = (),
) -> Renderings:
    """As a run has it; nothing of a compose file where what is asked for cannot be had."""
    settings = project.with_homes(settings)
    pairs = _outcomes(project, facts, settings, plan)
    kept = _as_written(project, facts, settings, pairs, workers)
    if kept is not None:
        part = gpu_part.words(
            gpu_part.parsed(kept[COMPOSE_FILE].encode("utf-8", "surrogateescape"))
        )
        return Renderings({path: (text,) for path, text in kept.items()}, (part,))
    texts: dict[str, list[str]] = {path: [] for path in OWNABLE}
    for _, outcome in pairs:
        for name, text in render_slurm(outcome, CONFIG_FILES).items():
            texts[f"config/{name}"].append(text)
    texts[".env"].append(render_env(settings.prefix))
    gpus = []
    for seen, (proof, outcome) in product(_engines(facts), pairs):
        tag = stanza.image_tag(settings, outcome.gpu_type)
        try:
            text = stanza.compose_text(
                project.folder, settings, seen, outcome, proof, tag, None, workers
            )
        except DshpcError:
            continue
        texts[COMPOSE_FILE].append(text)
        part = gpu_part.words(gpu_part.parsed(text.encode("utf-8", "surrogateescape")))
        if part not in gpus and (part or len(pairs) == 1):  # without a GPU only where that is sure
            gpus.append(part)
    return Renderings({path: tuple(found) for path, found in texts.items() if found}, tuple(gpus))


def _engines(facts: HostFacts) -> tuple[HostFacts, ...]:
    """One that does not answer does not say how it keeps logs either: each way that it may."""
    if facts.engine.log_driver is not None:
        return (facts,)
    drivers = (None, "json-file", "local")
    return tuple(
        replace(facts, engine=replace(facts.engine, log_driver=driver)) for driver in drivers
    )


def _as_written(
    project: Project,
    facts: HostFacts,
    settings: Settings,
    pairs: Sequence[tuple[Passthrough, ClusterPlan]],
    workers: Sequence[stanza.Worker],
) -> Mapping[str, str] | None:
    """The files themselves, where they are what was last rendered, and that from the same inputs.

    To render costs more than all else that is asked of the folder.
    """
    note = project.read_note(RENDERED)
    if len(pairs) != 1 or not isinstance(digests := note.get("files"), dict):
        return None
    ((proof, plan),) = pairs
    texts = {}
    try:
        for path in OWNABLE:
            texts[path] = read_text(project.folder / path) or ""
            if digest(texts[path]) != digests.get(path):
                return None
        tag = stanza.image_tag(settings, plan.gpu_type)
        file = stanza.compose_file(project.folder, settings, facts, plan, proof, tag, None, workers)
    except DshpcError:
        return None
    return texts if inputs(plan, file) == note.get("inputs") else None


def _outcomes(
    project: Project, facts: HostFacts, settings: Settings, plan: ClusterPlan
) -> list[tuple[Passthrough, ClusterPlan]]:
    """How the test-run may end, and the plan then: one where it is known how."""
    without = passthrough.without_test(plan, simulated_device_files(settings.simulate))
    if without is not None:
        return [(without, plan)]
    whole = not settings.devices
    cpu_plan = plan_cluster(facts, replace(settings, gpu="none", devices=()))
    kept = Passthrough.from_json(project.read_note(PROOF))
    if kept is not None and kept.key == passthrough.proof_key(facts, plan, whole):
        return [(kept, plan if kept.works else cpu_plan)]
    from dshpc_setup.passthrough.candidates import candidates

    rows = (row.handover for row in candidates(facts, plan, whole) if row.handover is not None)
    ways = [(Passthrough(handover, "Not tested."), plan) for handover in rows]
    return [*ways, (Passthrough(Handover("none"), "Not tested."), cpu_plan)]


def stale(path: str, text: str, texts: tuple[str, ...] | None) -> bool | None:
    """Whether it differs from all that would do, in what a cluster would notice."""
    if not texts:
        return None
    same = _same_for(path)
    return same(text) not in [same(item) for item in texts]


def _same_for(path: str) -> Callable[[str], Any]:
    """What is compared: not the size of /tmp, which a container sees otherwise, nor comments of ours."""
    if path == COMPOSE_FILE:
        return _compose_without_build
    return slurm_conf.without_tmp_disk


def _compose_without_build(text: str) -> Any:
    """The document less its build section, which needs the base image, and less what hangs on it."""
    document = gpu_part.parsed(text.encode("utf-8", "surrogateescape"))
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict):
        return document
    rest = {key: value for key, value in document.items() if key != "secrets"}
    return {**rest, "services": {name: _without_build(each) for name, each in services.items()}}


def _without_build(service: Any) -> Any:
    if not isinstance(service, dict):
        return service
    labels = service.get("labels")
    if isinstance(labels, dict):
        labels = {key: value for key, value in labels.items() if key != RENDERED_LABEL}
    return {**{key: value for key, value in service.items() if key != "build"}, "labels": labels}
