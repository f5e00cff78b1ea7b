"""GPUs of any vendor, and Intel's: where each check fires, where it must not, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dshpc_setup.diagnose import CheckInput, Finding, diagnose, gpu
from dshpc_setup.facts import Gpus
from dshpc_setup.plan import plan_cluster
from dshpc_setup.settings import Settings
from dshpc_setup.vendors.intel import checks as intel
from tests.unit.diagnose.known import findings, known
from tests.unit.diagnose.tables import Tables, text

CHECKS = (*gpu.CHECKS, *intel.CHECKS)
FIRES = {
    "DSH-GP-001": ("vm-pci-denied", "vm-no-gpu"),
    "DSH-GP-002": ("a100x2-one-needs-reset", "a100x2"),
    "DSH-GP-004": ("nvidia-smi-without-a-card", "nvidia-smi-finds-nothing"),
    "DSH-GP-009": ("rtx4090-proc-disagrees", "workstation-rtx4090"),
    "DSH-GP-008": ("workstation-rtx4090/gpu-memory-full", "workstation-rtx4090/gpu-memory-tight"),
    "DSH-GP-020": ("arc-b580-no-driver", "arc-b580-xe"),
    "DSH-GP-021": ("arc-b580-xe/intel-hang", "arc-b580-xe/intel-no-hang"),
}
"""Id -> a machine where it must fire, and its near miss."""

NOTES = {
    "DSH-GP-001": ("vm-no-gpu", "workstation-rtx4090"),
    "DSH-GP-003": ("h100x2-one-vfio", "a5000-nouveau-beside"),
    "DSH-GP-005": ("rtx4090-beside-rx7900xtx", "mixed-h100-t4"),
    "DSH-GP-006": ("mixed-h100-t4", "rtx4090-beside-rx7900xtx"),
}
"""The same for what is worth knowing only."""

MORE = {
    ("DSH-GP-001", "macos-arm"): "info",
    ("DSH-GP-002", "amd-smi-only"): "warn",
    ("DSH-GP-003", "radeon-old-driver"): "info",
    ("DSH-GP-003", "laptop-intel-display"): "info",
    ("DSH-GP-003", "a40-vgpu-host"): "info",
    ("DSH-GP-003", "a100x2-excluded-card"): "info",
    ("DSH-GP-003", "mi300x-no-driver"): "ok",
    ("DSH-GP-004", "rtx4090-off-the-bus"): "warn",
    ("DSH-GP-004", "mi300x-no-kfd"): "ok",
    ("DSH-GP-004", "arc-b580-no-driver"): "ok",
    ("DSH-GP-004", "a100x2-version-mismatch"): "ok",
    ("DSH-GP-005", "vm-no-gpu"): "skipped",
    ("DSH-GP-006", "wsl2-three-gpus"): "info",
    ("DSH-GP-006", "h100x8-one-lost"): "ok",
    ("DSH-GP-006", "vm-no-gpu"): "skipped",
    ("DSH-GP-007", "workstation-rtx4090"): "ok",
    ("DSH-GP-008", "workstation-rtx4090/gpu-memory-held-by-job"): "info",
    ("DSH-GP-008", "workstation-rtx4090/healthy"): "ok",
    ("DSH-GP-008", "workstation-rtx4090"): "skipped",
    ("DSH-GP-020", "desktop-arc-a770"): "ok",
    ("DSH-GP-020", "flex-vfio"): "skipped",
    ("DSH-GP-020", "laptop-intel-display"): "skipped",
    ("DSH-GP-021", "arc-b580-xe/intel-xe-reset"): "warn",
    ("DSH-GP-021", "arc-b580-xe"): "skipped",
    ("DSH-GP-021", "workstation-rtx4090/healthy"): "skipped",
}

WORDS = {
    ("DSH-GP-001", "vm-pci-denied"): "may not be read",
    ("DSH-GP-001", "rocm-smi-hangs"): "amd-smi list",
    ("DSH-GP-001", "arc-b580-no-driver"): "ls -l /dev/dri",
    ("DSH-GP-001", "workstation-rtx4090-no-driver"): "driver is not loaded",
    ("DSH-GP-002", "a100x2-one-needs-reset"): "GPU 1 (0000:ca:00.0): it needs a reset",
    ("DSH-GP-002", "amd-smi-only"): "it has no device file",
    ("DSH-GP-003", "h100x2-one-vfio"): "vfio-pci",
    ("DSH-GP-003", "a100x2-excluded-card"): "NVIDIA A100 80GB PCIe, 0000:81:00.0: excluded",
    ("DSH-GP-004", "nvidia-smi-without-a-card"): "nvidia-smi: lists 1 GPU",
    ("DSH-GP-005", "rtx4090-beside-rx7900xtx"): "1 of NVIDIA, 1 of AMD",
    ("DSH-GP-006", "mixed-h100-t4"): "--gres=gpu:h100:1",
    ("DSH-GP-008", "workstation-rtx4090/gpu-memory-full"): "CUDA out of memory",
    ("DSH-GP-020", "arc-b580-no-driver"): "sudo modprobe -a i915 xe",
    ("DSH-GP-021", "arc-b580-xe/intel-hang"): "GPU HANG: ecode",
    ("DSH-GP-021", "arc-b580-xe/intel-xe-reset"): "Engine reset: engine_class=ccs",
}  # fmt: skip

CAUSES = {
    ("DSH-GP-001", "a100x2-version-mismatch"): "DSH-NV-001",
    ("DSH-GP-001", "workstation-rtx4090-nouveau"): "DSH-NV-002",
    ("DSH-GP-001", "workstation-rtx4090-no-library"): "DSH-NV-006",
    ("DSH-GP-001", "workstation-rtx4090-nvml-hangs"): "DSH-NV-022",
    ("DSH-GP-001", "wsl2-nvml-blocked"): "DSH-NV-030",
    ("DSH-GP-001", "workstation-rtx4090-no-driver"): "DSH-NV-062",
    ("DSH-GP-001", "a100x2-nvml-crashes"): "DSH-NV-080",
    ("DSH-GP-001", "mi300x-no-kfd"): "DSH-AM-039",
    ("DSH-GP-001", "mi300x-no-driver"): "DSH-AM-084",
    ("DSH-GP-001", "mi210-nomodeset"): "DSH-AM-039",
    ("DSH-GP-001", "arc-b580-no-driver"): "DSH-GP-020",
    ("DSH-GP-002", "h100-mig-no-instances"): "DSH-NV-018",
    ("DSH-GP-002", "h100x8-one-lost"): "DSH-NV-020",
    ("DSH-GP-002", "a100x2-one-prohibited"): "DSH-NV-028",
    ("DSH-GP-002", "amd-smi-only"): "DSH-GP-004",
}


def found(about: CheckInput, identity: str) -> Finding:
    return next(finding for finding in diagnose(about, CHECKS) if finding.id == identity)


class TestGpus(Tables):
    checks = CHECKS
    fires = FIRES
    notes = NOTES
    states = MORE
    words = WORDS


@pytest.mark.parametrize(("identity", "name"), CAUSES)
def test_its_root_cause(identity: str, name: str) -> None:
    assert findings(name)[identity].caused_by == CAUSES[identity, name]


def test_simulated_gpus_are_named() -> None:
    here = known("workstation-rtx4090")
    made = replace(here, facts=replace(here.facts, gpus=replace(here.facts.gpus, simulated=True)))
    finding = found(made, "DSH-GP-007")
    assert finding.state == "info"
    assert "simulated GPU 0" in finding.evidence[0]
    assert finding.fix[0].command == "configure-environment --simulate none"


def test_one_of_two_intel_cards_without_a_driver_is_a_warning() -> None:
    broken, well = known("arc-b580-no-driver").facts.gpus, known("arc-b580-xe").facts.gpus
    gpus = replace(well, unused=broken.unused, disagreements=broken.disagreements)
    here = known("arc-b580-xe")
    assert found(replace(here, facts=replace(here.facts, gpus=gpus)), "DSH-GP-020").state == "warn"


@pytest.mark.parametrize("state", ["denied", "timeout", "error"])
def test_a_failure_without_words_still_says_which(state: str) -> None:
    here = known("vm-no-gpu")
    gpus = Gpus(state)  # type: ignore[arg-type]
    finding = found(replace(here, facts=replace(here.facts, gpus=gpus)), "DSH-GP-001")
    assert (finding.state, finding.cause) == ("error", f"The GPUs could not be read: {state}.")


@pytest.mark.parametrize(
    "name", ["vm-no-gpu", "macos-arm", "container-none-handed-over", "mi300x-vfio"]
)
def test_a_machine_without_gpus_for_jobs_says_so(name: str) -> None:
    finding = findings(name)["DSH-GP-001"]
    assert (finding.state, finding.title) == ("info", "No GPU detected for jobs")
    assert [fix.command for fix in finding.fix] == ["configure-environment --simulate h100:2"]


def test_what_may_not_be_read_is_not_fixed_by_a_driver() -> None:
    assert "dshpc detect --explain" in text(findings("vm-pci-denied")["DSH-GP-001"])
    confined = text(findings("mi300x-nodes-denied")["DSH-GP-001"])
    assert "device cgroup" in confined
    assert "outside of it" in confined
    assert "amd-smi" not in confined


def test_a_long_answer_of_a_tool_is_cut() -> None:
    evidence = findings("rocm-smi-cut-off")["DSH-GP-001"].evidence
    assert any(line.endswith(" ...") for line in evidence)
    assert max(map(len, evidence)) < 400


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("a100x2-one-not-started", "DSH-NV-003"),
        ("h100x4-nvml-crashes-halfway", "DSH-NV-080"),
        ("h100x4-nvml-crashes-smi-lists", "DSH-NV-080"),
        ("h100x4-nvml-hangs-halfway", "DSH-NV-022"),
        ("nvidia-smi-without-a-card", None),
    ],
)
def test_what_the_driver_explains_is_no_contradiction_of_its_own(
    name: str, root: str | None
) -> None:
    finding = findings(name)["DSH-GP-004"]
    assert (finding.state, finding.caused_by) == ("warn", root)


def test_one_contradiction_is_said_once() -> None:
    finding = findings("nvidia-smi-without-a-card")["DSH-GP-004"]
    assert not any("does not speak" in line for line in finding.evidence)
    assert "does not speak" in finding.cause


def test_without_a_cluster_a_full_gpu_is_worth_knowing_and_no_more() -> None:
    """Nobody can say whether it is somebody's work, which it mostly is."""
    here = known("workstation-rtx4090/gpu-memory-full")
    alone = replace(here, observed=replace(here.observed, cluster=None))
    assert found(alone, "DSH-GP-008").state == "info"
    assert "23101 of 24564 MiB in use" in text(found(alone, "DSH-GP-008"))


def test_who_holds_the_memory_is_asked_of_each_maker() -> None:
    memory = known("workstation-rtx4090/gpu-memory-full").observed.gpu_memory
    for name, tool in (("workstation-rtx4090", "nvidia-smi"), ("mi300a", "amd-smi process")):
        here = known(name)
        full = replace(here, observed=replace(here.observed, gpu_memory=memory))
        assert tool in text(found(full, "DSH-GP-008"))


@pytest.mark.parametrize(("gres_type", "first"), [("model", "h100"), ("index", "gpu0")])
def test_one_type_of_several_is_named_as_slurm_takes_it(gres_type: str, first: str) -> None:
    seen = known("mixed-h100-t4")
    seen = replace(seen, plan=plan_cluster(seen.facts, Settings(gres_type=gres_type)))
    (found,) = (each for each in diagnose(seen, gpu.CHECKS) if each.id == "DSH-GP-006")
    assert f"--gres=gpu:{first}:1 names one" in str(found.cause)
