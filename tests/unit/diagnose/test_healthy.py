"""A machine that is well is told so: no warning and no error of any section, on any platform."""

from __future__ import annotations

import pytest

from tests.unit.diagnose.known import findings, known

NVIDIA = (
    *("a100x2", "a100-ecc-persistence-off", "a10x2-nvidia-smi-xml-only", "a40-vgpu-host"),
    *("gb10-unified-memory", "gh200", "h100-guest-no-fabric", "h100-mig", "h100-mixed-mig"),
    *("h100x2-one-vfio", "h100x8", "h100x8-nvlink", "l40s-vgpu-guest", "mixed-h100-t4"),
    *("workstation-rtx4090", "workstation-rtx4090-amd-igpu", "rtx4090-toolkit-updated"),
    *(
        "rtx4090-rootless-no-cgroups",
        "workstation-rtx4090/healthy",
        "workstation-rtx4090/kernel-usual",
    ),
)
JETSON = (
    *("orin-jetpack6", "orin-jetpack5-no-nvml", "orin-container", "thor"),
    *("nano-old-nodes", "xavier-old-nodes"),
)
AMD = (
    *("mi100-memory-by-tool", "mi210x4-toolkit-cdi", "mi210x4-xgmi", "mi250x", "mi300a"),
    *("mi300x-cpx", "mi300x-dpx", "mi308x-cpx", "rx7900xtx-with-igpu", "strix-halo"),
    *("vega-no-gfx-target", "container-mi300x-one-of-two"),
)
INTEL = ("arc-b580-xe", "desktop-arc-a770", "max1550", "max1550-cdi", "vm-arc-a770")
WINDOWS = (
    *("wsl2-rtx3080", "wsl2-rtx3080-engine-cdi", "wsl2-three-gpus", "wsl2-engine-inside"),
    "wsl2-no-nvidia",
)
APPLE = ("macos-arm", "macos-arm-colima", "macos-arm-desktop-not-limited")
WITHOUT_GPU = (
    *("vm-no-gpu", "vm-kvm-guest", "vm-vmware-guest", "vm-virtio-gpu", "ci-runner-azure"),
    *("ec2-guest", "ec2-metal", "server-bare-metal", "server-arm64", "server-256-cpus"),
    *("server-aspeed-display", "laptop-amd-display", "laptop-intel-display", "laptop-intel-npu"),
    *("hybrid-cpu", "workstation-rtx4090-vfio", "mi300x-vfio", "flex-vfio"),
)
ENGINES = ("compose-v1-and-v2", "engine-cdi-devices", "vm-podman", "vm-rootless-docker",
           "selinux-enforcing")  # fmt: skip
CONTAINERS = (
    *("container-h100-two-of-eight", "container-none-handed-over", "container-cgroup-v2-no-limits"),
    *("container-kubernetes-pod", "container-lxc", "container-podman"),
)
HEALTHY = (*NVIDIA, *JETSON, *AMD, *INTEL, *WINDOWS, *APPLE, *WITHOUT_GPU, *ENGINES, *CONTAINERS)

FAULTY = (
    *("a100x2-version-mismatch", "h100x8-one-lost", "mi300x-no-kfd", "arc-b580-no-driver"),
    *("wsl2-nvml-blocked", "wsl1", "container-h100-unknown-error", "vm-no-docker"),
    "workstation-rtx4090/kernel-xid-memory",
)


@pytest.mark.parametrize("name", HEALTHY)
def test_it_has_no_warning_and_no_error(name: str) -> None:
    states = {each.id: each.state for each in findings(name).values()}
    assert states
    bad = {
        identity: state
        for identity, state in states.items()
        if state in ("warn", "error", "crashed")
    }
    assert bad == {}


@pytest.mark.parametrize("name", FAULTY)
def test_one_that_is_not_well_has(name: str) -> None:
    assert {"warn", "error"} & {each.state for each in findings(name).values()}


def test_every_platform_and_maker_is_among_them() -> None:
    all_facts = [known(name).facts for name in HEALTHY]
    assert {facts.platform.kind for facts in all_facts} == {"linux", "wsl2", "macos"}
    assert {facts.gpus.vendor for facts in all_facts} == {"nvidia", "amd", "intel", "none"}
    assert {facts.platform.in_container for facts in all_facts} == {True, False}
    assert {"x86_64", "aarch64"} <= {facts.platform.arch for facts in all_facts}
    assert len(set(HEALTHY)) == len(HEALTHY)
