"""The rules themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dshpc_setup.cluster.status import TIERS
from dshpc_setup.describe import describe_attempt, describe_proof
from dshpc_setup.diagnose import Finding, Known, Rule, Section, nvidia
from dshpc_setup.fixes import Fix
from dshpc_setup.passthrough import proof_key

_GPU_EVIDENCE = frozenset(
    "nvidia jetson wsl nvidia-pci nvidia-module nvidia-nodes nvml nvidia-smi nvidia-proc "
    "amd kfd kfd-device drm amdsmi amd-smi rocm-smi amd-blacklist intel intel-device".split()
)


def _set_up(known: Known) -> Fix:
    text = "Set it up again" if known.cluster else "Set it up"
    return Fix(text, "configure-environment", automatic=True)


def _platform(known: Known) -> Finding:
    facts = known.facts.platform
    found = Finding("DSH-HO-001", "host", "ok", "The system can run the cluster")
    read = (f"{facts.kind}, {facts.os_id} {facts.os_version}, kernel {facts.kernel}",)
    if facts.kind == "wsl1":
        return replace(
            found,
            state="error",
            evidence=read,
            cause="WSL1 has no Linux kernel, so Docker cannot run in it.",
            fix=(Fix("Move this distribution to WSL2, in PowerShell", "wsl --set-version NAME 2"),),
        )
    if facts.kind == "macos":
        return replace(
            found,
            state="info",
            evidence=read,
            cause="On macOS containers run in a virtual machine that no GPU reaches: CPU only.",
        )
    return replace(found, evidence=read)


def _resources(known: Known) -> Finding:
    cpu, memory = known.facts.cpu, known.facts.memory
    read = (
        f"{cpu.usable} of {cpu.logical} CPUs, limited by {cpu.limited_by or 'nothing'}",
        f"{memory.limit_mib} of {memory.total_mib} MiB, limited by {memory.limited_by or 'nothing'}",
    )
    found = Finding("DSH-HO-002", "host", "ok", "There is room for jobs", read)
    if memory.usable_mib is not None and memory.usable_mib < 1024:
        return replace(
            found, state="warn", cause="Less than 1 GiB of memory is left for jobs.",
            fix=(Fix("Give this machine, or Docker's virtual machine, more memory"),),
        )  # fmt: skip
    return found


def _engine(known: Known) -> Finding:
    engine = known.facts.engine
    found = Finding("DSH-DK-001", "engine", "ok", "The Docker engine answers")
    if engine.state == "present":
        return replace(found, evidence=(f"{engine.server_version} at {engine.host}",))
    if known.endpoint and engine.state != "denied":
        return replace(
            found,
            state="error",
            evidence=(engine.detail or engine.state,),
            cause=f"The engine at {known.endpoint} does not answer. "
            "DOCKER_HOST or a docker context names it.",
            fix=(
                Fix("See whether it is up", "docker version"),
                Fix("Or use the engine of this machine",
                    "unset DOCKER_HOST; docker context use default"),
            ),
        )  # fmt: skip
    causes = {
        "absent": "Docker is not installed, or not running.",
        "denied": "This user may not use Docker.",
        "timeout": "Docker did not answer in time.",
    }
    fixes = {
        "absent": _set_up(known),
        "denied": Fix("Let this user use Docker, then log out and in",
                      "sudo usermod -aG docker $USER"),
    }  # fmt: skip
    return replace(
        found,
        state="error",
        evidence=(engine.detail or engine.state,),
        cause=causes.get(engine.state, "Docker answered with an error."),
        fix=(fixes.get(engine.state, Fix("See what Docker says", "docker version")),),
    )


def _compose(known: Known) -> Finding:
    found = Finding("DSH-DK-002", "engine", "ok", "Docker Compose is there")
    if known.facts.engine.state != "present":
        return replace(found, state="skipped", blocked_by="DSH-DK-001")
    compose = known.facts.engine.compose
    if compose is not None:
        return replace(found, evidence=(f"{' '.join(compose.argv)} {compose.version}",))
    return replace(found, state="error", cause="Neither compose v2 nor v1 is installed.",
                   fix=(_set_up(known),))  # fmt: skip


def _gpus(known: Known) -> Finding:
    gpus = known.facts.gpus
    found = Finding("DSH-GP-001", "gpu", "ok", "GPUs are found and readable")
    if gpus.state == "present":
        label = "simulated " if gpus.simulated else ""
        return replace(
            found,
            evidence=tuple(
                f"{label}{device.index}: {device.name or device.vendor}" for device in gpus.devices
            ),
        )
    evidence = tuple(
        f"{item.probe}: {item.state} ({item.source}) {item.detail or ''}".strip()
        for item in known.facts.evidence
        if item.probe in _GPU_EVIDENCE
    )
    if gpus.state in ("absent", "unsupported"):
        return replace(
            found, state="info", evidence=evidence, cause=gpus.detail or "There is none."
        )
    return replace(
        found,
        state="error",
        evidence=evidence,
        cause=gpus.detail or f"The GPUs could not be read: {gpus.state}.",
        fix=(Fix("See what the driver itself says", "nvidia-smi"),),
    )


def _broken_gpus(known: Known) -> Finding:
    found = Finding("DSH-GP-002", "gpu", "ok", "Every GPU can be scheduled")
    if not known.facts.gpus.devices:
        return replace(found, state="skipped", blocked_by="DSH-GP-001")
    broken = tuple(
        f"{device.index} ({device.name}): {', '.join(device.problems) or 'no device file'}"
        for device in known.facts.gpus.devices
        if device.problems or not device.device_files
    )
    if not broken:
        return found
    return replace(found, state="warn", evidence=broken, cause="These GPUs are left out.")


def _passthrough(known: Known) -> Finding:
    found = Finding("DSH-PT-001", "passthrough", "ok", "Containers can use the GPUs")
    if not known.facts.gpus.devices:
        return replace(found, state="skipped", blocked_by="DSH-GP-001")
    if known.facts.engine.state != "present":
        return replace(found, state="skipped", blocked_by="DSH-DK-001")
    if known.facts.gpus.simulated:
        return replace(
            found, state="info", cause="The GPUs are simulated: there is nothing to test."
        )
    if known.proof is None:
        return replace(found, state="info", cause="Not tested yet.", fix=(_set_up(known),))
    if known.plan is not None and not known.plan.gres:
        left_out = known.plan.left_out[0] if known.plan.left_out else None
        return replace(found, state="info", cause=left_out or "The cluster is to use none.")
    if known.plan is None or known.proof.key != proof_key(known.facts, known.plan, known.whole):
        return replace(
            found,
            state="warn",
            evidence=(known.proof.reason,),
            cause="That was tested before the machine, its engine or the settings changed.",
            fix=(Fix("Test it again", "configure-environment", automatic=True),),
        )
    if known.proof.works:
        return replace(found, evidence=(known.proof.reason,))
    first = known.proof.to_mend
    return replace(
        found,
        state="error",
        evidence=tuple(describe_attempt(row) for row in known.proof.attempts),
        cause=describe_proof(known.proof),
        fix=(
            *(first.fix if first is not None else ()),
            Fix("Then test again", "configure-environment"),
        ),
    )


def _container(known: Known) -> Finding:
    found = Finding("DSH-SL-001", "slurm", "ok", "The cluster's container runs")
    cluster = known.cluster
    if cluster is None:
        return replace(found, state="info", cause="No cluster is set up in this folder.",
                       fix=(_set_up(known),))  # fmt: skip
    if known.facts.engine.state != "present":
        return replace(found, state="skipped", blocked_by="DSH-DK-001")
    if cluster.state == "running":
        return replace(found, evidence=(f"{cluster.container}, health {cluster.health}",))
    if cluster.problem:
        return replace(found, state="error", evidence=(cluster.problem,),
                       cause=f"The container {cluster.container} cannot be asked.")  # fmt: skip
    word = "does not exist" if cluster.state == "missing" else f"is {cluster.state}"
    return replace(
        found, state="error", cause=f"The container {cluster.container} {word}.",
        fix=(Fix("Start it", "dshpc up", automatic=True),),
    )  # fmt: skip


def _node(known: Known) -> Finding:
    found = Finding("DSH-SL-002", "slurm", "ok", "The node takes jobs")
    cluster = known.cluster
    if cluster is None or cluster.state != "running":
        return replace(found, state="skipped", blocked_by="DSH-SL-001")
    if cluster.failure is not None:
        return _in_its_words(found, "The start failed.", cluster.failure)
    if cluster.problem:
        return replace(
            found, state="error", evidence=(cluster.problem,), cause="The controller does not answer.",
            fix=(Fix("Look at its log", "dshpc logs --tail 50"),),
        )  # fmt: skip
    if cluster.phase != "ready":
        return replace(found, state="warn", evidence=(cluster.phase or "not begun yet",),
                       cause="The cluster is still starting.",
                       fix=(Fix("See how it goes", "dshpc status"),))  # fmt: skip
    evidence = tuple(
        f"{node.name}: {node.state}, {node.gres or 'no GPU'}"
        + (f", because: {node.reason}" if node.reason else "")
        for node in cluster.nodes
    )
    if cluster.ready:
        return replace(found, evidence=evidence)
    return replace(
        found, state="error", evidence=evidence, cause="The node is not available to jobs.",
        fix=(Fix("See the reason", "dshpc scontrol show node"),),
    )  # fmt: skip


def _isolation(known: Known) -> Finding:
    found = Finding("DSH-SL-003", "slurm", "ok", "Jobs are kept to their own GPUs")
    cluster = known.cluster
    if cluster is None or not cluster.nodes:
        return replace(found, state="skipped", blocked_by="DSH-SL-002")
    if not any(node.gres for node in cluster.nodes):
        return replace(found, state="skipped", blocked_by="DSH-GP-001")
    cause = f"The tier in force is {cluster.isolation}: {TIERS[cluster.isolation]}."
    if cluster.isolation == "enforced":
        return replace(found, evidence=(cause,))
    return replace(found, state="info", cause=cause)


def _configuration(known: Known) -> Finding:
    found = Finding("DSH-FI-001", "files", "ok", "What config/ holds is in force")
    cluster = known.cluster
    if cluster is None or cluster.state != "running":
        return replace(found, state="skipped", blocked_by="DSH-SL-001")
    if cluster.kept_last_good is not None:
        cause = "It was refused; the last good configuration is in force."
        return _in_its_words(found, cause, cluster.kept_last_good)
    if cluster.phase != "ready":
        return replace(found, state="skipped", blocked_by="DSH-SL-002")
    return found


def _in_its_words(found: Finding, cause: str, failure: dict[str, Any]) -> Finding:
    """An error as the container's start told it: {brief, details, resolution}."""
    words = (str(failure.get("brief", "")), *str(failure.get("details", "")).splitlines())
    fix = tuple(Fix(str(step)) for step in failure.get("resolution", ()))
    return replace(found, state="error", evidence=words, cause=cause, fix=fix)


RULES: tuple[tuple[str, Section, str, Rule], ...] = (
    ("DSH-HO-001", "host", "The system can run the cluster", _platform),
    ("DSH-HO-002", "host", "There is room for jobs", _resources),
    ("DSH-GP-001", "gpu", "GPUs are found and readable", _gpus),
    ("DSH-GP-002", "gpu", "Every GPU can be scheduled", _broken_gpus),
    ("DSH-NV-031", "driver", "No Linux driver of NVIDIA's lies inside WSL", nvidia.driver_in_wsl),
    ("DSH-NV-049", "driver", "The NVIDIA driver is new enough", nvidia.driver_age),
    ("DSH-DK-001", "engine", "The Docker engine answers", _engine),
    ("DSH-DK-002", "engine", "Docker Compose is there", _compose),
    ("DSH-PT-001", "passthrough", "Containers can use the GPUs", _passthrough),
    ("DSH-SL-001", "slurm", "The cluster's container runs", _container),
    ("DSH-SL-002", "slurm", "The node takes jobs", _node),
    ("DSH-SL-003", "slurm", "Jobs are kept to their own GPUs", _isolation),
    ("DSH-FI-001", "files", "What config/ holds is in force", _configuration),
)
