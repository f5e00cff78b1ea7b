"""What this container has now, how that differs from the last start, and the plan for it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dshpc_setup.container import drift, hardware
from dshpc_setup.container.drift import Change
from dshpc_setup.container.run import Run
from dshpc_setup.facts import HostFacts
from dshpc_setup.files.storage import cannot_write, read_text

if TYPE_CHECKING:
    from dshpc_setup.plan import ClusterPlan, DeviceLink


@dataclass(frozen=True)
class Seen:
    """`changes` are since the last start that got ready."""

    facts: HostFacts
    plan: ClusterPlan
    image: str
    changes: tuple[Change, ...]


def look(run: Run) -> Seen:
    """Steps "detect" and "plan"; afterwards the device links of the plan are there."""
    status = run.status
    with status.step("detect"):
        facts = hardware.look_surely(run.machine, run.settings.simulate, status.say)
        facts, left_out = hardware.only_visible(facts, run.machine.is_device)
        if run.settings.simulate and not run.settings.devices:
            note = hardware.not_handed_in(run.machine, run.settings.simulate)
            left_out = (*left_out, note) if note else left_out
        built_for = (read_text(run.paths.gpu_type) or "none").strip()
        note = hardware.image_note(built_for, facts)
        for sentence in (*left_out, note):
            if sentence:
                status.note(sentence)
        status.values.update(image_gpu_type=built_for, simulated=facts.gpus.simulated)
    with status.step("plan"):
        from dshpc_setup.plan import devices, plan_cluster

        image = hardware.image_version(built_for)
        before = drift.load(run.paths)
        changes = drift.compare(before, drift.remembered(facts, image))
        status.values.update(
            changes=[item.sentence for item in changes],
            drift=[item.to_json() for item in changes],
        )
        plan = plan_cluster(facts, run.settings)
        for sentence in devices.unhealthy_told(plan, facts.gpus):
            status.note(sentence)
        make_links(run, plan.device_links)
    return Seen(facts, plan, image, changes)


def make_links(run: Run, links: tuple[DeviceLink, ...]) -> None:
    """Names of our own for device nodes that stand for several GPUs; one that is right is left."""
    for link in links:
        path = run.paths.at(link.path)
        try:
            if os.path.islink(path) and os.readlink(path) == link.target:
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            new = f"{path}.dshpc-tmp"
            if os.path.lexists(new):
                os.unlink(new)
            os.symlink(link.target, new)
            os.replace(new, path)
        except OSError as error:
            raise cannot_write(path, error) from None
