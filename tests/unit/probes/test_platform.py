"""What kind of machine it is, whose container, whose virtual machine: and what it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Conclusion, Platform
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.probes import container, gpus, platform, virtual
from dshpc_setup.probes.trace import Trace
from tests.unit.probes.written import written

HEX = "8f" * 32
X86 = "-- proc/cpuinfo --\nprocessor\t: 0\nflags\t\t: fpu sse lm{}\n"
ARM = "-- proc/cpuinfo --\nprocessor\t: 0\nFeatures\t: fp asimd\n"
BROUGHT = "-- .dockerenv --\n-- run/systemd/container --\ndocker\n"
KERNELS = "-- proc/2/comm --\nkthreadd\n"
FIRST = "-- proc/self/mountinfo --\n22 27 0:21 / /proc rw - proc proc rw\n27 1 254:0 / / rw - ext4 x rw\n"
DMI = "-- sys/class/dmi/id/{} --\n{}\n"


def concluded(found: tuple[Conclusion, ...], about: str) -> Conclusion:
    return next(item for item in found if item.about == about)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", "wsl2"),
        ("4.4.0-19041-Microsoft", "wsl1"),
        ("4.4.0-19041-generic", "linux"),
        ("6.8.0-60-generic", "linux"),
        ("6.5.0-1025-azure", "linux"),
        ("", "linux"),
    ],
)
def test_kinds_of_linux(release: str, expected: str) -> None:
    assert platform.kind_of(release, False) == expected


def test_a_kernel_of_the_users_own_is_wsl_by_its_files(tmp_path: Path) -> None:
    tree = "-- dev/dxg device --\n-- usr/lib/wsl/lib/libcuda.so --\n"
    found = platform.probe(written(tmp_path, tree, release="6.6.1-mine"), 1.0)
    assert (found.fact.kind, found.fact.virtual_machine) == ("wsl2", "hyperv")
    why = concluded(found.conclusions, "platform.kind")
    assert {item.source for item in why.because} >= {"/dev/dxg", "/usr/lib/wsl/lib"}
    assert {item.source for item in why.instead} == {"linux", "wsl1", "macos"}


def test_dxg_alone_is_no_wsl(tmp_path: Path) -> None:
    machine = written(tmp_path, "-- dev/dxg device --\n")
    assert platform.probe(machine, 1.0).fact.kind == "linux"


@pytest.mark.parametrize(
    ("tree", "env", "expected"),
    [
        ("", {}, None),
        ("-- .dockerenv --\n", {}, "docker"),
        ("-- run/.containerenv --\n", {}, "podman"),
        ("-- run/.containerenv --\n-- .dockerenv --\n", {}, "podman"),
        ("", {"container": "podman"}, "podman"),
        ("", {"container": "lxc"}, "lxc"),
        ("", {"container": "systemd-nspawn"}, "systemd-nspawn"),
        ("", {"container": "flatpak"}, "other"),
        ("", {"container": "oci"}, "other"),
        ("-- run/.containerenv --\n", {"container": "oci"}, "podman"),
        ("-- .dockerenv --\n", {"container": "lxc"}, "lxc"),
        ("", {"container": ""}, None),
        ("", {"CONTAINER_NAME": "web"}, None),
        ("-- run/host/container-manager --\nsystemd-nspawn\n", {}, "systemd-nspawn"),
        ("-- run/systemd/container --\nlxc\n", {}, "lxc"),
        ("-- run/systemd/container --\nwsl\n", {}, None),
        ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ("-- run/secrets/kubernetes.io/token --\nx\n-- .dockerenv --\n", {}, "kubernetes"),
        (f"-- proc/self/cgroup --\n4:memory:/docker/{HEX}\n", {}, "docker"),
        (f"-- proc/self/cgroup --\n0::/system.slice/docker-{HEX}.scope\n", {}, "docker"),
        ("-- proc/self/cgroup --\n0::/system.slice/docker.service\n", {}, None),
        (f"-- proc/self/cgroup --\n0::/machine.slice/libpod-{HEX}.scope\n", {}, "podman"),
        (f"-- proc/self/cgroup --\n3:cpu:/kubepods/burstable/pod1/{HEX}\n", {}, "kubernetes"),
        ("-- proc/self/cgroup --\n0::/lxc.payload.web\n", {}, "lxc"),
        ("-- proc/self/cgroup --\n0::/user.slice/user-0.slice\n", {}, None),
        ("-- sys/fs/cgroup/cgroup.type --\ndomain\n", {}, "other"),
        ("-- proc/vz/x --\n", {}, "other"),
        ("-- proc/vz/x --\n-- proc/bc/x --\n", {}, None),
        # A microVM of an image that a container left its files in, and containers that look like one
        (f"{BROUGHT}{KERNELS}{FIRST}", {"container": "docker"}, None),
        (f"{BROUGHT}{FIRST}", {}, "docker"),
        (
            f"{BROUGHT}{KERNELS}-- proc/self/mountinfo --\n650 540 0:52 / / rw - ext4 x rw\n",
            {},
            "docker",
        ),
        (f"{BROUGHT}-- proc/2/comm --\nsh\n{FIRST}", {}, "docker"),
        (
            f"{BROUGHT}{KERNELS}-- proc/self/mountinfo --\n27 1 8:1 /vfs/1 / rw - ext4 x rw\n",
            {},
            "docker",
        ),
    ],
)
def test_whose_container(
    tmp_path: Path, tree: str, env: dict[str, str], expected: str | None
) -> None:
    machine = written(tmp_path, tree, env=env)
    found = platform.probe(machine, 1.0)
    assert (found.fact.container, found.fact.in_container) == (expected, expected is not None)
    assert platform.in_container(machine) is (expected is not None)
    why = concluded(found.conclusions, "platform.container")
    assert (why.says, bool(why.because)) == (expected or "none", True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "650 540 0:52 / / rw,relatime master:1 - overlay overlay rw,lowerdir="
            "/var/lib/docker/overlay2/l/ABC:/var/lib/docker/overlay2/l/DEF,upperdir=/x",
            "docker",
        ),
        (
            "1 2 0:52 / / rw - overlay overlay rw,lowerdir="
            "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs",
            "containerd",
        ),
        (
            "1 2 0:5 / / rw - fuse.fuse-overlayfs fuse-overlayfs rw,x="
            "/home/me/.local/share/containers/storage/overlay/l/A",
            "podman",
        ),
        ("1 2 0:52 / / rw - overlay overlay rw,lowerdir=/cow/lower,upperdir=/cow/upper", None),
        (
            "1 2 0:52 / /var/lib/docker/overlay2/x/merged rw - overlay overlay "
            "rw,lowerdir=/var/lib/docker/overlay2/l/ABC",
            None,
        ),
        ("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw", None),
    ],
)
def test_a_root_made_of_an_engines_layers(line: str, expected: str | None) -> None:
    assert container.parse_root(f"22 27 0:21 / /proc rw - proc proc rw\n{line}\n") == expected


@pytest.mark.parametrize(
    ("told", "raises"),
    [("000001ffffffffff", True), ("000001fffeffffff", False), ("x", None), ("", None)],
)
def test_whether_limits_can_be_raised(tmp_path: Path, told: str, raises: bool | None) -> None:
    machine = written(tmp_path, f"-- proc/1/status --\nName:\tinit\nCapBnd:\t{told}\n")
    assert platform.probe(machine, 1.0).fact.raises_limits is raises


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (X86.format("") + DMI.format("sys_vendor", "Dell Inc."), "none"),
        (X86.format(" hypervisor") + DMI.format("sys_vendor", "QEMU"), "qemu"),
        (
            X86.format(" hypervisor")
            + DMI.format("sys_vendor", "QEMU")
            + f"-- {virtual._CLOCKS[1:]} --\nkvm-clock tsc acpi_pm\n",
            "kvm",
        ),
        (X86.format(" hypervisor") + DMI.format("product_name", "KVM"), "kvm"),
        (X86.format(" hypervisor") + DMI.format("sys_vendor", "VMware, Inc."), "vmware"),
        (X86.format(" hypervisor") + DMI.format("product_name", "VirtualBox"), "virtualbox"),
        (X86.format(" hypervisor") + DMI.format("chassis_vendor", "QEMU"), "qemu"),
        (X86.format(" hypervisor") + DMI.format("product_name", "HVM domU"), "xen"),
        (X86.format(" hypervisor") + "-- sys/hypervisor/type --\nxen\n", "xen"),
        (
            X86.format("")
            + DMI.format("sys_vendor", "HPE")
            + "-- sys/hypervisor/type --\nxen\n-- proc/xen/capabilities --\ncontrol_d\n",
            "none",
        ),
        (
            X86.format(" hypervisor")
            + DMI.format("sys_vendor", "Microsoft Corporation")
            + DMI.format("product_name", "Virtual Machine"),
            "hyperv",
        ),
        (
            X86.format("")
            + DMI.format("sys_vendor", "Microsoft Corporation")
            + DMI.format("product_name", "Surface Pro 9"),
            "none",
        ),
        (
            X86.format("")
            + DMI.format("sys_vendor", "Oracle Corporation")
            + DMI.format("product_name", "ORACLE SERVER X9-2"),
            "none",
        ),
        (
            X86.format("") + DMI.format("sys_vendor", "Google") + DMI.format("product_name", "Eve"),
            "none",
        ),
        (X86.format(" hypervisor") + DMI.format("product_name", "Google Compute Engine"), "google"),
        (
            X86.format("")
            + DMI.format("sys_vendor", "Amazon EC2")
            + DMI.format("product_name", "c5.metal"),
            "none",
        ),
        (
            X86.format(" hypervisor")
            + DMI.format("sys_vendor", "Amazon EC2")
            + DMI.format("product_name", "g5.xlarge"),
            "amazon",
        ),
        (
            ARM
            + DMI.format("sys_vendor", "Amazon EC2")
            + DMI.format("product_name", "c7g.metal-48xl"),
            "none",
        ),
        (ARM + DMI.format("sys_vendor", "Amazon EC2"), "amazon"),
        (ARM + DMI.format("sys_vendor", "NVIDIA"), "none"),
        (ARM + DMI.format("product_name", "Apple Virtualization Generic Platform"), "apple"),
        (ARM + "-- proc/device-tree/model --\nNVIDIA Jetson AGX Orin\n", "none"),
        (ARM + "-- proc/device-tree/compatible --\nlinux,dummy-virt\n", "qemu"),
        (ARM + "-- proc/device-tree/hypervisor/compatible --\nlinux,kvm\n", "kvm"),
        (ARM + "-- proc/device-tree/hypervisor/compatible --\nmine,own\n", "unknown"),
        (X86.format(" hypervisor"), "unknown"),
        (X86.format(" hypervisor") + f"-- {virtual._CLOCKS[1:]} --\ntsc kvm-clock\n", "kvm"),
        (
            X86.format(" hypervisor") + "-- sys/firmware/acpi/tables/FACP --\nFACP....FIRECKFCVM\n",
            "firecracker",
        ),
        ("-- proc/cpuinfo --\nvendor_id\t: User Mode Linux\n", "uml"),
        # not enough to say that it is none
        (X86.format(""), None),
        (DMI.format("sys_vendor", "Dell Inc."), None),
        ("", None),
    ],
)
def test_whose_virtual_machine(tmp_path: Path, tree: str, expected: str | None) -> None:
    found = platform.probe(written(tmp_path, tree), 1.0)
    assert found.fact.virtual_machine == expected
    assert concluded(found.conclusions, "platform.virtual_machine").because
    seen = [item for item in found.evidence if item.probe == "virtual machine"]
    assert seen[-1].detail, "why nothing is known is said as well"


def test_firmware_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    tree = "-- sys/class/dmi/id/sys_vendor denied --\n" + X86.format("")
    found = platform.probe(written(tmp_path, tree), 1.0)
    assert found.fact.virtual_machine is None
    assert "denied" in [item.state for item in found.evidence if item.probe == "virtual machine"]


def test_a_mac_says_why_and_what_else() -> None:
    intel = gpus.unsupported(Platform("macos", arch="x86_64"))
    apple = gpus.unsupported(Platform("macos", arch="arm64"))
    assert intel is not None
    assert apple is not None
    assert "PCI" in (intel.detail or "")
    assert "neither CUDA nor ROCm" in (apple.detail or "")
    for answer in (intel, apple):
        for word in ("Linux server", "cloud", "Metal, outside of Docker"):
            assert word in (answer.detail or "")


def test_os_release_reads_quotes() -> None:
    text = "ID=rocky\nVERSION_ID=\"9.5\"\nNAME='it\\'s'\n# ID=no\nbad line\n"
    assert platform.parse_os_release(text) == {"ID": "rocky", "VERSION_ID": "9.5", "NAME": "it's"}


LINES = st.lists(
    st.text(max_size=40)
    | st.sampled_from(
        ["ID=debian", 'PRETTY_NAME="x', f"4:memory:/docker/{HEX}", "0::/../..", "flags : hypervisor",
         "1 2 0:5 / / rw - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A", "container=",
         "1 - - -", "::::", "\0container=oci\0", "control_d", "ffffffffffffffff"]
    ),
    max_size=8,
).map("\n".join)  # fmt: skip


@given(text=LINES)
def test_no_text_trips_a_parser(text: str) -> None:
    platform.parse_os_release(text)
    platform.kind_of(text, False)
    container.parse_environ(text)
    container.parse_group(text)
    container.parse_root(text)
    virtual.parse_cpuinfo(text)
    virtual.parse_owns_hardware(text, text)


@given(
    dmi=st.dictionaries(st.sampled_from(virtual._DMI_FIELDS), st.text(max_size=20)),
    flag=st.none() | st.booleans(),
    texts=st.tuples(st.text(max_size=20), st.none() | st.text(max_size=20)),
    other=st.tuples(
        st.booleans(), st.none() | st.text(max_size=20), st.none() | st.just("a board")
    ),
)
def test_bare_metal_is_never_concluded_from_silence(
    dmi: dict[str, str],
    flag: bool | None,
    texts: tuple[str, str | None],
    other: tuple[bool, str | None, str | None],
) -> None:
    clocks, hypervisor = texts
    flagless, tree, model = other
    signs = virtual.Signs(dmi, flag, flagless, clocks, hypervisor, False, tree, model)
    verdict = virtual.judge(signs)
    assert verdict.says
    if verdict.name == "none":
        assert not flag
        assert flag is False or flagless
        assert any(dmi.values()) or model


def test_an_empty_tree_has_no_name_for_its_kernel() -> None:
    found = platform.probe(LocalMachine("/nonexistent"), 1.0)
    assert (found.fact.kernel, found.fact.arch, found.fact.os_id) == (None, None, None)
    assert not container.signs(Trace(LocalMachine("/nonexistent")))
