"""NVIDIA's driver and cards: where each check fires, where it must not, and in which words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dshpc_setup.diagnose import CheckInput, Finding, diagnose
from dshpc_setup.diagnose.nvidia import CHECKS
from dshpc_setup.errors import Fix
from dshpc_setup.facts import CdiSpec, Evidence, GpuHealth
from dshpc_setup.observed.model import Inside, KernelLog, Observed
from dshpc_setup.passthrough import Attempt, Cause, Passthrough, proof_key
from dshpc_setup.passthrough.handover import Handover
from dshpc_setup.settings import Settings
from tests.unit.diagnose.known import findings, known
from tests.unit.diagnose.tables import Tables, text

W = "workstation-rtx4090"
FIRES = {
    "DSH-NV-001": ("a100x2-version-mismatch", "a100x2"),
    "DSH-NV-002": ("workstation-rtx4090-nouveau", "a5000-nouveau-beside"),
    "DSH-NV-003": ("a100x2-one-not-started", "a100x2-excluded-card"),
    "DSH-NV-004": ("workstation-rtx4090-no-driver/kernel-unsigned",
                   "workstation-rtx4090-no-driver/kernel-tainted-only"),
    "DSH-NV-005": (f"{W}/kernel-needs-open", "h100x8-nvlink/kernel-switch"),
    "DSH-NV-006": ("workstation-rtx4090-no-library", "orin-jetpack5-no-nvml"),
    "DSH-NV-013": ("container-h100-unknown-error", "container-h100-two-of-eight"),
    "DSH-NV-018": ("h100-mig-no-instances", "h100-mig"),
    "DSH-NV-019": ("h100x8-fabric-not-started", "h100-guest-no-fabric"),
    "DSH-NV-020": ("h100x8-one-lost", "h100x8"),
    "DSH-NV-021": ("a100x2-one-needs-reset", f"{W}/kernel-xid-reset-done"),
    "DSH-NV-022": ("workstation-rtx4090-nvml-hangs", W),
    "DSH-NV-028": ("a100x2-one-prohibited", "a100-ecc-persistence-off"),
    "DSH-NV-030": ("wsl2-nvml-blocked", "wsl2-no-nvidia"),
    "DSH-NV-031": ("wsl2-linux-driver-inside", "wsl2-rtx3080"),
    "DSH-NV-049": ("t4-driver-460-too-old", "t4-nvidia-smi-only"),
    "DSH-NV-062": ("workstation-rtx4090-no-driver", "workstation-rtx4090-vfio"),
    "DSH-NV-080": ("a100x2-nvml-crashes", "container-h100-unknown-error"),
    "DSH-NV-081": (f"{W}/kernel-xid-memory", f"{W}/kernel-xid-program"),
    "DSH-NV-083": ("h100x4-nvml-hangs-halfway", "h100x4-nvml-crashes-smi-lists"),
    "DSH-NV-084": (f"{W}/kernel-legacy-gpu", f"{W}/kernel-usual"),
    "DSH-NV-101": ("h100x8-nvlink/kernel-switch-fatal", "h100x8-nvlink/kernel-switch"),
    "DSH-NV-102": (f"{W}-no-driver/kernel-no-addresses", f"{W}/kernel-usual"),
    "DSH-NV-103": (f"{W}-no-driver/kernel-other-driver-first", "workstation-rtx4090-vfio"),
    "DSH-NV-104": (f"{W}-no-driver/kernel-other-kernel", f"{W}-no-driver/kernel-tainted-only"),
    "DSH-NV-105": (f"{W}-no-driver/kernel-no-power", f"{W}/kernel-needs-open"),
    "DSH-NV-106": ("a100x2-one-broken", "a100x2-one-waits-for-reset"),
    "DSH-NV-107": ("h100x8-nvlink-route-unhealthy", "h100x8-nvlink"),
    "DSH-NV-108": ("a100x2-one-waits-for-reset", "a100x2-errors-before"),
}  # fmt: skip
"""Id -> a machine where it must fire, and its near miss."""

NOTES = {
    "DSH-NV-029": ("a100-ecc-persistence-off", "a5000-nouveau-beside"),
    "DSH-NV-082": ("a100-ecc-persistence-off", "a100x2"),
}
"""The same for what is worth knowing only."""

MORE = {
    ("DSH-NV-003", "a100x2-nvml-denied"): "error",
    ("DSH-NV-003", "container-h100-no-permission"): "error",
    ("DSH-NV-004", f"{W}/kernel-other-module-refused"): "ok",
    ("DSH-NV-004", f"{W}/kernel-denied"): "skipped",
    ("DSH-NV-004", f"{W}/kernel-cut"): "skipped",
    ("DSH-NV-005", f"{W}/kernel-too-old-for-open"): "warn",
    ("DSH-NV-006", "t4-nvidia-smi-fails"): "ok",
    ("DSH-NV-080", "t4-nvidia-smi-fails"): "error",
    ("DSH-NV-006", "t4-nvidia-smi-only"): "info",
    ("DSH-NV-006", "workstation-rtx4090-vfio"): "ok",
    ("DSH-NV-019", "h100x8-nvlink"): "ok",
    ("DSH-NV-020", "rtx4090-off-the-bus"): "warn",
    ("DSH-NV-020", f"{W}/kernel-xid-79"): "error",
    ("DSH-NV-021", f"{W}/kernel-xid-reset"): "warn",
    ("DSH-NV-021", f"{W}/kernel-xid-79"): "ok",
    ("DSH-NV-029", "h100x8-nvlink"): "ok",
    ("DSH-NV-030", "wsl2-no-dxg-driver-in-windows"): "warn",
    ("DSH-NV-030", "wsl2-rtx3080"): "ok",
    ("DSH-NV-030", W): "skipped",
    ("DSH-NV-031", "wsl2-linux-driver-inside-unharmed"): "warn",
    ("DSH-NV-062", "tegra-without-nvgpu"): "error",
    ("DSH-NV-062", "orin-jetpack6"): "ok",
    ("DSH-NV-080", "orin-gpu-did-not-start"): "error",
    ("DSH-NV-080", "h100x4-nvml-crashes-smi-lists"): "warn",
    ("DSH-NV-081", "h100x8-nvlink/kernel-switch"): "ok",
    ("DSH-NV-081", f"{W}/kernel-denied"): "skipped",
    ("DSH-NV-081", f"{W}/kernel-xid-memory"): "error",
    ("DSH-NV-101", "h100x8-nvlink/kernel-switch"): "info",
    ("DSH-NV-101", f"{W}/kernel-denied"): "skipped",
    ("DSH-NV-106", "a100x2-one-broken"): "error",
    ("DSH-NV-107", "h100x8-nvlink-route-unhealthy"): "error",
    ("DSH-NV-108", "a100x2-errors-before"): "info",
    ("DSH-NV-108", "a100x2-one-broken"): "ok",
}

WORDS = {
    ("DSH-NV-001", "a100x2-version-mismatch"): "driver/library version mismatch",
    ("DSH-NV-002", "workstation-rtx4090-nouveau"): "/etc/modprobe.d/blacklist-nouveau.conf",
    ("DSH-NV-003", "a100x2-one-not-started"): "dmesg | grep -i NVRM",
    ("DSH-NV-004", "workstation-rtx4090-no-driver/kernel-unsigned"): "Secure Boot",
    ("DSH-NV-005", f"{W}/kernel-needs-open"): "nvidia-driver-570-open",
    ("DSH-NV-006", "workstation-rtx4090-no-library"): "libnvidia-ml.so.1",
    ("DSH-NV-013", "container-h100-unknown-error"): "Unknown Error",
    ("DSH-NV-018", "h100-mig-no-instances"): "nvidia-smi mig -i 0000:4f:00.0 -cgi PROFILE -C",
    ("DSH-NV-019", "h100x8-fabric-not-started"): "802",
    ("DSH-NV-020", "h100x8-one-lost"): "fallen off the bus",
    ("DSH-NV-021", "a100x2-one-needs-reset"): "sudo nvidia-smi --gpu-reset -i 0000:",
    ("DSH-NV-021", f"{W}/kernel-xid-reset"): "sudo nvidia-smi --gpu-reset -i 0000:01:00.0",
    ("DSH-NV-022", "workstation-rtx4090-nvml-hangs"): "no answer",
    ("DSH-NV-028", "a100x2-one-prohibited"): "nvidia-smi -i 0000:81:00.0 -c 0",
    ("DSH-NV-030", "wsl2-nvml-blocked"): "GPU access blocked by the operating system",
    ("DSH-NV-031", "wsl2-linux-driver-inside"): "wsl --shutdown",
    ("DSH-NV-062", "workstation-rtx4090-no-driver"): "nvidia-modprobe",
    ("DSH-NV-081", f"{W}/kernel-xid-memory"): "Xid 48",
    ("DSH-NV-082", "a100-ecc-persistence-off"): "one program at a time",
    ("DSH-NV-084", f"{W}/kernel-legacy-gpu"): "470",
    ("DSH-NV-101", "h100x8-nvlink/kernel-switch-fatal"): "sudo reboot",
    ("DSH-NV-102", f"{W}-no-driver/kernel-no-addresses"): "pci=realloc",
    ("DSH-NV-103", f"{W}-no-driver/kernel-other-driver-first"): "sudo modprobe nvidia",
    ("DSH-NV-104", f"{W}-no-driver/kernel-other-kernel"): "sudo dkms autoinstall",
    ("DSH-NV-105", f"{W}-no-driver/kernel-no-power"): "power supply",
    ("DSH-NV-106", "a100x2-one-broken"): "--unhealthy-gpus use",
    ("DSH-NV-107", "h100x8-nvlink-route-unhealthy"): "a route is unhealthy",
    ("DSH-NV-108", "a100x2-one-waits-for-reset"): "sudo nvidia-smi --gpu-reset -i 0000:81:00.0",
}


class TestNvidia(Tables):
    checks = CHECKS
    fires = FIRES
    notes = NOTES
    states = MORE
    words = WORDS


@pytest.mark.parametrize(
    ("name", "root", "folded"),
    [
        ("workstation-rtx4090-nouveau", "DSH-NV-002", ("DSH-NV-062", "DSH-NV-006")),
        ("workstation-rtx4090-no-driver/kernel-unsigned", "DSH-NV-004", ("DSH-NV-062",)),
        ("h100x4-nvml-hangs-halfway", "DSH-NV-022", ("DSH-NV-083",)),
        ("h100x4-nvml-crashes-halfway", "DSH-NV-080", ("DSH-NV-083",)),
        ("wsl2-linux-driver-inside", "DSH-NV-031", ("DSH-NV-030",)),
        (f"{W}/kernel-xid-79", "DSH-NV-020", ("DSH-NV-081",)),
        (f"{W}/kernel-xid-reset", "DSH-NV-081", ("DSH-NV-021",)),
    ],
)
def test_one_root_with_what_it_explains(name: str, root: str, folded: tuple[str, ...]) -> None:
    of_driver = {finding.id: finding for finding in diagnose(known(name), CHECKS)}
    assert of_driver[root].caused_by is None
    faults = {each.id for each in of_driver.values() if each.state in ("warn", "error")}
    assert faults == {root, *folded}
    assert {of_driver[identity].caused_by for identity in folded} == {root}


@pytest.mark.parametrize("name", ["vm-no-gpu", "mi300x-cpx", "max1550", "macos-arm", "wsl1",
                                  "container-none-handed-over"])  # fmt: skip
def test_where_nvidia_has_nothing_all_is_skipped(name: str) -> None:
    for finding in diagnose(known(name), CHECKS):
        assert finding.state == "skipped", finding
        assert finding.cause


def test_a_bus_that_may_not_be_read_is_no_machine_without_a_gpu() -> None:
    finding = findings("vm-pci-denied")["DSH-NV-062"]
    assert (finding.state, "may not be read" in finding.cause) == ("skipped", True)


def test_nouveau_is_kept_away_by_the_way_of_the_distribution() -> None:
    here = known("workstation-rtx4090-nouveau")
    for system, command in (("ubuntu", "update-initramfs -u"), ("fedora", "dracut --force"),
                            ("arch", "mkinitcpio -P"), ("nixos", "nixos-rebuild boot")):  # fmt: skip
        platform = replace(here.facts.platform, os_id=system, os_like=())
        made = replace(here, facts=replace(here.facts, platform=platform))
        assert command in text(found(made, "DSH-NV-002"))


def found(about: CheckInput, identity: str) -> Finding:
    return next(finding for finding in diagnose(about, CHECKS) if finding.id == identity)


# -- what the test-run shows ------------------------------------------------------------------------

BY_TEST = (
    *(
        "DSH-NV-001",
        "DSH-NV-006",
        "DSH-NV-013",
        "DSH-NV-015",
        "DSH-NV-020",
        "DSH-NV-021",
        "DSH-NV-022",
    ),
    *(
        "DSH-NV-023",
        "DSH-NV-024",
        "DSH-NV-025",
        "DSH-NV-027",
        "DSH-NV-030",
        "DSH-NV-062",
        "DSH-NV-078",
    ),
    "DSH-NV-080",
)
STEP = Fix("Fix it", "true")


def proven(name: str, mechanism: Any, **change: Any) -> CheckInput:
    """A machine with the outcome of a test-run that still holds."""
    here = known(name)
    assert here.plan is not None
    proof = Passthrough(
        Handover(mechanism), "Tried.", key=proof_key(here.facts, here.plan, here.whole)
    )
    return replace(here, proof=replace(proof, **change))


@pytest.mark.parametrize("identity", BY_TEST)
def test_what_a_test_container_showed(identity: str) -> None:
    row = Attempt("device-request", "fails", "the container said so", identity, ("said",), (STEP,))
    finding = found(proven(W, "none", attempts=(row,)), identity)
    assert (finding.state, finding.fix) == ("error", (STEP,))
    assert "said" in finding.evidence
    other = "DSH-NV-023" if identity != "DSH-NV-023" else "DSH-NV-027"
    assert found(proven(W, "none", attempts=(replace(row, finding=other),)), identity).state in (
        *("ok", "skipped"),
    )
    works = replace(row, mechanism="runtime", state="works", finding=None)
    assert found(proven(W, "runtime", attempts=(row, works)), identity).state not in (
        *("warn", "error"),
    )
    old = proven(W, "none", attempts=(row,), key="of another machine")
    assert found(old, identity).state in ("ok", "skipped")


@pytest.mark.parametrize("identity", ["DSH-NV-023", "DSH-NV-024", "DSH-NV-025", "DSH-NV-078"])
def test_what_the_test_container_was_warned_of(identity: str) -> None:
    warned = proven(W, "cdi", warnings=(Cause(identity, "it may fail", (STEP,)),))
    finding = found(warned, identity)
    assert (finding.state, finding.cause, finding.fix) == ("warn", "It may fail.", (STEP,))
    assert found(proven(W, "cdi"), identity).state == "ok"
    assert found(known(W), identity).state == "skipped"


def test_cudas_node_is_missed_by_a_cdi_specification() -> None:
    here = known(W)
    for missing, state in (("/dev/nvidia-uvm", "warn"), ("/dev/nvidia-uvm-tools", "ok")):
        nodes = ("/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
        spec = CdiSpec(
            "/etc/cdi/nvidia.yaml", "present", "nvidia.com/gpu", nodes=nodes, missing=(missing,)
        )
        engine = replace(here.facts.engine, cdi_specs=(spec,))
        made = replace(here, facts=replace(here.facts, engine=engine))
        finding = found(made, "DSH-NV-015")
        assert finding.state == state
        assert ("nvidia-modprobe -u" in text(finding)) == (state == "warn")


def test_gpus_that_systemd_took_from_the_running_container() -> None:
    def seen(mechanism: Any, driver: str, *, opens: bool) -> Finding:
        here = known(W)
        facts = replace(here.facts, engine=replace(here.facts.engine, cgroup_driver=driver))
        here = replace(here, facts=facts)
        assert here.plan is not None
        proof = Passthrough(Handover(mechanism), "", key=proof_key(facts, here.plan, here.whole))
        inside = Inside(device_files={"/dev/nvidia0": opens})
        return found(replace(here, proof=proof, observed=Observed(inside=inside)), "DSH-NV-013")

    lost = seen("device-request", "systemd", opens=False)
    assert lost.state == "error"
    assert "Failed to initialize NVML: Unknown Error" in lost.cause
    assert "dshpc restart" in text(lost)
    assert seen("runtime", "systemd", opens=False).state == "error"
    assert seen("device-request", "systemd", opens=True).state == "info"
    assert seen("device-request", "cgroupfs", opens=True).state == "ok"
    assert seen("cdi", "systemd", opens=False).state == "ok"


def handed_by_the_hook(case: str, *, opens: bool = True) -> Finding:
    """DSH-NV-013 of that case, GPUs by --gpus under the cgroup driver systemd."""
    here = known(f"{W}/{case}")
    facts = replace(here.facts, engine=replace(here.facts.engine, cgroup_driver="systemd"))
    here = replace(here, facts=facts)
    assert here.plan is not None
    assert here.observed.inside is not None
    way = Handover("device-request")
    proof = Passthrough(way, "", key=proof_key(facts, here.plan, here.whole))
    inside = replace(here.observed.inside, device_files={"/dev/nvidia0": opens})
    observed = replace(here.observed, inside=inside)
    return found(replace(here, proof=proof, observed=observed), "DSH-NV-013")


@pytest.mark.parametrize(
    ("case", "opens", "state", "words"),
    [
        ("healthy", True, "ok", "/dev/char has a link for each"),
        ("links-missing", True, "info", "/dev/char has no link for /dev/nvidia0, /dev/nvidiactl"),
        ("links-denied", True, "info", "/dev/char: this user may not look there"),
        ("links-missing", False, "error", "/dev/char has no link for /dev/nvidia0, /dev/nvidiactl"),
        ("healthy", False, "error", "/dev/char has a link for each"),
    ],
)
def test_the_links_that_systemd_wants(case: str, opens: bool, state: str, words: str) -> None:
    finding = handed_by_the_hook(case, opens=opens)
    assert finding.state == state
    assert words in "\n".join(finding.evidence)
    assert ("/dev/nvidia-uvm" in text(finding)) is False
    advised = "create-dev-char-symlinks" in text(finding)
    assert advised == (case != "healthy"), "links that are there are not advised"
    assert ("dshpc restart" in text(finding)) == (not opens)


def test_only_the_gpu_at_fault_is_reset() -> None:
    """Without -i every GPU of the machine would be."""
    waiting = findings("a100x2-one-needs-reset")["DSH-NV-021"]
    here = known("a100x2-one-needs-reset").facts.gpus.devices
    (bad,) = (gpu for gpu in here if gpu.problems)
    assert waiting.fix[0].command == f"sudo nvidia-smi --gpu-reset -i {bad.pci_bus_id}"
    assert "the others keep running" in waiting.fix[0].text
    told = findings(f"{W}/kernel-xid-memory")["DSH-NV-081"]
    resets = [fix.command for fix in told.fix if "--gpu-reset" in (fix.command or "")]
    assert resets == ["sudo nvidia-smi --gpu-reset -i 0000:01:00.0"]


@pytest.mark.parametrize(
    ("sharing", "state"), [("shard:4", "warn"), ("mps", "ok"), ("none", "info")]
)
def test_cards_for_one_program_at_a_time(sharing: str, state: str) -> None:
    here = known("a100-ecc-persistence-off", Settings(gpu_sharing=sharing))
    finding = found(here, "DSH-NV-082")
    assert finding.state == state
    assert ("gpu_sharing" in finding.cause) == (state == "warn")


def test_a_broken_gpu_is_kept_from_jobs_unless_it_is_asked_for() -> None:
    kept = known("a100x2-one-broken")
    assert kept.plan is not None
    assert kept.plan.gres_text == "gpu:a100:1"
    told = {each.id: each for each in diagnose(kept)}
    assert "Jobs do not get it." in told["DSH-NV-106"].cause
    assert told["DSH-GP-002"].caused_by == "DSH-NV-106"
    used = known("a100x2-one-broken", Settings(unhealthy_gpus="use"))
    assert used.plan is not None
    assert used.plan.gres_text == "gpu:a100:2"
    told = {each.id: each for each in diagnose(used)}
    assert told["DSH-NV-106"].state == "error"
    assert "Jobs get it anyway" in told["DSH-NV-106"].cause
    assert told["DSH-GP-002"].state == "ok"


def test_a_fabric_that_is_slow_is_no_reason_to_leave_a_gpu_out() -> None:
    here = known("h100x8-nvlink")
    slow = GpuHealth(fabric=("limited-capacity", "degraded-bandwidth"))
    gpus = tuple(replace(gpu, health=slow) for gpu in here.facts.gpus.devices)
    facts = replace(here.facts, gpus=replace(here.facts.gpus, devices=gpus))
    assert found(replace(here, facts=facts), "DSH-NV-107").state == "warn"


def test_every_id_is_tried() -> None:
    tried = {*FIRES, *BY_TEST, "DSH-NV-029", "DSH-NV-082"}
    assert {check.id for check in CHECKS} == tried


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("wsl2-linux-driver-inside", "libnvidia-compute-550 nvidia-utils-550"),
        ("wsl2-linux-driver-inside-unharmed", "nvidia-driver-550"),
    ],
)
def test_the_container_toolkit_is_not_removed_with_the_driver(name: str, packages: str) -> None:
    command = findings(name)["DSH-NV-031"].fix[0].command or ""
    assert command.startswith(f"sudo apt-get remove --purge {packages} &&")
    assert "*" not in command


def test_an_older_driver_is_not_advised_where_other_cards_need_this_one() -> None:
    beside = findings(f"{W}/kernel-legacy-gpu")["DSH-NV-084"]
    assert beside.state == "warn"
    assert not [fix for fix in beside.fix if fix.command]
    here = known("workstation-rtx4090-no-driver")
    log = known(f"{W}/kernel-legacy-gpu").observed.kernel
    alone = found(replace(here, observed=replace(here.observed, kernel=log)), "DSH-NV-084")
    assert alone.state == "error"
    assert alone.fix[0].command == "sudo ubuntu-drivers install"


# -- what the driver itself asks for ----------------------------------------------------------------


def test_a_restart_that_the_driver_asks_for_is_told_after_any_xid() -> None:
    asked = findings(f"{W}/kernel-xid-restart")
    told = asked["DSH-NV-081"]
    assert (told.state, told.fix[0].command) == ("error", "sudo reboot")
    assert "--gpu-reset" not in text(told)
    assert "62" in text(told)
    assert "OS Reboot" in text(told)
    assert asked["DSH-NV-021"].state == "ok"


def after(name: str, *log: str) -> Finding:
    """DSH-NV-081 of a machine with these lines in its kernel's log."""
    seen = Observed(kernel=KernelLog("present", log))
    return found(replace(known(name), observed=seen), "DSH-NV-081")


def test_a_driver_that_wants_a_restart_or_hangs_is_not_asked_for_a_reset() -> None:
    xid = "NVRM: Xid (PCI:0000:01:00): {}"
    gsp, links = xid.format("119, Timeout after 6s"), xid.format("74, pid=1")
    wish = xid.format("154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)")
    over = xid.format("154, GPU recovery action changed from 0x2 (OS Reboot) to 0x0 (None)")
    assert "--gpu-reset" in text(after(W, gsp, links))
    assert after(W, gsp, wish, over).state == "info"
    wants = after(W, gsp, links, wish)
    assert wants.fix[0].command == "sudo reboot"
    assert wish in wants.evidence
    assert "--gpu-reset" not in text(wants)
    hangs = after("workstation-rtx4090-nvml-hangs", gsp, links)
    assert hangs.fix[0].command == "sudo reboot"
    assert not [fix for fix in hangs.fix if "nvidia-smi" in (fix.command or "")]


def test_a_reset_is_known_by_its_number_whatever_the_driver_calls_it() -> None:
    asked = findings(f"{W}/kernel-xid-reset-new-words")
    assert asked["DSH-NV-021"].state == "warn"
    assert "--gpu-reset -i 0000:01:00.0" in text(asked["DSH-NV-021"])
    other = asked["DSH-NV-081"]
    assert other.state == "info"
    assert "program" not in other.title + other.cause


@pytest.mark.parametrize(("case", "root"), [("kernel-too-old-for-open", "DSH-NV-005"),
                                            ("kernel-legacy-gpu", "DSH-NV-084")])  # fmt: skip
def test_a_card_that_the_driver_refuses_is_why_the_driver_is_not_loaded(
    case: str, root: str
) -> None:
    seen = findings(f"workstation-rtx4090-no-driver/{case}")
    assert seen["DSH-NV-062"].caused_by == seen["DSH-GP-001"].caused_by == root
    assert len(set(seen[root].evidence)) == len(seen[root].evidence)
    assert findings("workstation-rtx4090-no-driver")["DSH-NV-062"].caused_by is None


def test_a_missing_node_of_a_loaded_driver_needs_no_driver_installed() -> None:
    steps = [fix.command for fix in findings("rtx4090-proc-disagrees")["DSH-GP-009"].fix]
    assert steps == ["sudo nvidia-modprobe -c=0 -u", "sudo reboot"]


def test_cudas_node_is_looked_for_on_the_machine_itself() -> None:
    here = known("rtx4090-runtime-not-in-force")
    assert here.facts.engine.cdi_specs == ()
    assert found(here, "DSH-NV-015").state == "ok"
    gone = Evidence("nvidia-uvm", "absent", "/dev/nvidia-uvm", 0.0)
    without = replace(here, facts=replace(here.facts, evidence=(*here.facts.evidence, gone)))
    assert found(without, "DSH-NV-015").state == "info", "the first CUDA program of root makes it"
    inside = replace(without.facts.platform, in_container=True)
    told = found(replace(without, facts=replace(without.facts, platform=inside)), "DSH-NV-015")
    assert told.state == "warn"
    assert "handed over" in text(told)
    assert findings("wsl2-rtx3080")["DSH-NV-015"].state == "skipped"
    assert findings(W)["DSH-NV-015"].state == "ok"
