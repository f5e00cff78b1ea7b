"""Whether a proof that was kept is of the machine as it is now: by what it depends on, in one word."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dshpc_setup.facts import HostFacts
    from dshpc_setup.plan import ClusterPlan


def proof_key(facts: HostFacts, plan: ClusterPlan, whole: bool) -> str:
    """Names everything that a proof depends on: engine, toolkits, CDI, driver, devices, settings."""
    engine = facts.engine
    parts = [
        engine.engine_id,
        engine.server_version,
        engine.host,
        engine.rootless,
        engine.default_runtime,
        *(sorted(names) for names in (engine.runtimes, engine.cdi_devices, engine.cdi_folders)),
        sorted(engine.newer),
        [asdict(item) for item in sorted(engine.toolkits, key=lambda item: item.vendor)],
        [asdict(item) for item in sorted(engine.cdi_specs, key=lambda item: item.path)],
        facts.gpus.driver_version,
        facts.platform.kind,
        facts.platform.selinux,
        whole,
        [(gpu.uuid, gpu.pci_bus_id, gpu.device_files, gpu.group_ids) for gpu in plan.gpus],
        [(line.uuid, line.files) for line in plan.gres],
    ]
    return hashlib.sha256(json.dumps(parts, default=list).encode()).hexdigest()[:32]
