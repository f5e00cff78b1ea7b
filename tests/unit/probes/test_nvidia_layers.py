"""The layers below NVML: their parsers, Jetson boards and WSL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import nvidia_driver
from dshpc_setup.probes import loader
from dshpc_setup.probes.nvidia import instances as nvidia_instances
from dshpc_setup.probes.nvidia import jetson
from dshpc_setup.probes.nvidia import layers as nvidia_layers
from dshpc_setup.probes.nvidia import probe as nvidia
from dshpc_setup.probes.trace import Trace
from tests.unit.probes.nvidia_machine import gpu, gpus, machine, present

LINES = st.lists(
    st.text(max_size=40)
    | st.sampled_from(
        [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue", "Model: \t\t Tesla T4",
            "Device Minor: \t 99999999999999999999999", "GPU UUID: \t GPU-????????", "GPU Excluded:",
            "/usr/lib/libnvidia-ml.so.1", "libcuda.so.1\0/usr/lib/libcuda.so.1\0", "nvidia,tegra234",
            "# R36 (release), REVISION: 4.3, GCID", "gpu0/gi1/access 12", "DeviceFileMinor: 30",
            "9" * 4000, "\0", ":::",
        ]
    ),
    max_size=8,
).map("\n".join)  # fmt: skip

PARSERS: list[Callable[[str], object]] = [
    nvidia_layers.parse_banner,
    nvidia_layers.library_paths,
    nvidia_driver.too_old,
    lambda text: nvidia_layers.same_version(text, text),
    lambda text: nvidia_layers.parse_information("0000:01:00.0", text),
    nvidia_instances.parse_minor,
    nvidia_instances.parse_mig_minors,
    jetson.soc_of,
    jetson.parse_release,
]


@pytest.mark.parametrize("parse", PARSERS)
@given(text=LINES)
def test_no_text_trips_a_parser(parse: Callable[[str], object], text: str) -> None:
    parse(text)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024",
            ("535.183.01", "proprietary"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build",
            ("580.65.06", "open"),
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed",
            ("390.157", "proprietary"),
        ),
        ("GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2)", (None, None)),
        ("", (None, None)),
    ],
)
def test_the_modules_banner(line: str, expected: tuple[str | None, str | None]) -> None:
    assert nvidia_layers.parse_banner(f"{line}\nGCC version:  gcc version 13.3.0\n") == expected


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("460.91.03", True), ("390.157", True), ("367.57", True), ("470.57.02", False),
        ("580.00", False), ("1080", False), (None, False), ("", False), ("v460", False),
    ],
)  # fmt: skip
def test_drivers_that_are_too_old(version: str | None, old: bool) -> None:
    assert nvidia_driver.too_old(version) is old


def test_too_old_is_named_and_the_devices_are_listed_all_the_same() -> None:
    found = gpus("t4-driver-460-too-old")
    assert "460.91.03 is too old" in (found.detail or "")
    assert [device.problems for device in found.devices] == [()]


@pytest.mark.parametrize(
    ("one", "other"), [("550.54.15", None), ("550.1", "550.1"), ("x", "550.1")]
)
def test_versions_that_cannot_be_told_apart(one: str, other: str | None) -> None:
    assert nvidia_layers.same_version(one, other)
    assert not nvidia_layers.same_version("550.54.15", "550.54.14")


def test_the_kernels_own_words_of_a_card() -> None:
    text = (
        "Model: \t\t Tesla K80\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"
        "Bus Location: \t 0000:06:00.0\nDevice Minor: \t 1\nBlacklisted:\t Yes\n"
    )
    known = nvidia_layers.parse_information("0000:06:00.0", text)
    assert (known.model, known.uuid, known.minor, known.excluded) == ("Tesla K80", None, 1, True)


def test_the_loaders_index() -> None:
    cache = (
        "glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1\0"
        "libcuda.so.1\0/usr/lib/wsl/lib/libcuda.so.1\0libcudart.so.12\0/x/libcudart.so.12\0"
    )
    assert nvidia_layers.library_paths(cache) == (
        "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
    )


def test_folders_of_the_architecture() -> None:
    assert loader.folders("aarch64")[1] == "/usr/lib/aarch64-linux-gnu"
    assert loader.folders("riscv64") == ("/lib", "/usr/lib", "/lib64", "/usr/lib64")


# --- Jetson


@pytest.mark.parametrize(
    ("compatible", "expected"),
    [
        ("nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0", "tegra234"),
        ("nvidia,jetson-nano\0nvidia,tegra210\0", "tegra210"),
        ("nvidia,tegra234-mc\0", None),
        ("raspberrypi,4-model-b\0brcm,bcm2711\0", None),
        ("", None),
    ],
)
def test_the_chip_in_the_device_tree(compatible: str, expected: str | None) -> None:
    assert jetson.soc_of(compatible) == expected


def test_the_release_of_jetson_linux() -> None:
    text = "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref, EABI: aarch64"
    assert jetson.parse_release(text) == "R35.4.1"
    assert jetson.parse_release("R") is None


@pytest.mark.parametrize(
    ("name", "slurm_type", "compute"),
    [
        ("orin-jetpack6", "orin", "8.7"),
        ("orin-jetpack5-no-nvml", "orin", "8.7"),
        ("xavier-old-nodes", "xavier", "7.2"),
        ("nano-old-nodes", "nano", "5.3"),
        ("thor", "thor", "11.0"),
        ("orin-container", "orin", "8.7"),
    ],
)
def test_boards(name: str, slurm_type: str, compute: str) -> None:
    (device,) = gpus(name).devices
    assert (device.slurm_type, device.compute) == (slurm_type, compute)
    assert (device.unified_memory, device.memory_mib) == (True, None)
    assert device.driver == "nvgpu"
    assert device.device_files
    assert "/dev/nvmap" in device.device_files


def test_a_card_in_the_slot_of_a_board_is_a_card(tmp_path: Path) -> None:
    root = (
        "-- proc/device-tree/compatible --\nnvidia,tegra234\n-- dev/nvidia0 device --\n"
        "-- sys/bus/pci/devices/0005:03:00.0/vendor --\n0x10de\n"
        "-- sys/bus/pci/devices/0005:03:00.0/class --\n0x030000\n"
        "-- sys/bus/pci/devices/0005:03:00.0/driver -> ../nvidia --\n"
        "-- sys/module/nvidia/version --\n535.1.2\n-- dev/nvgpu/igpu0/ctrl device --\n"
        "-- dev/nvgpu/igpu0/as device --\n-- dev/nvgpu/igpu0/channel device --\n-- dev/nvmap device --\n"
    )
    known = gpu(0, name="NVIDIA RTX A6000", pci_bus_id="00000005:03:00.0")
    found = nvidia.probe(machine(tmp_path, root, nvml=present(known), arch="aarch64"), 1.0).fact
    assert [device.slurm_type for device in found.devices] == ["rtx_a6000", "orin"]
    assert found.devices[0].device_files == ("/dev/nvidia0",)
    assert found.devices[0].unified_memory is False


@pytest.mark.parametrize("soc", ["tegra20", "tegra30", "tegra114"])
def test_a_tegra_that_never_had_cuda_is_none(tmp_path: Path, soc: str) -> None:
    root = f"-- proc/device-tree/compatible --\nnvidia,{soc}\n"
    assert jetson.board(Trace(machine(tmp_path, root, arch="armv7l"))) is None


def test_an_arm_server_is_no_board(tmp_path: Path) -> None:
    assert gpus("gh200").devices[0].driver == "nvidia"
    root = "-- sys/devices/soc0/family --\njep106:036b\n"
    assert jetson.board(Trace(machine(tmp_path, root, arch="aarch64"))) is None


# --- WSL

WSL = "5.15.167.4-microsoft-standard-WSL2"
_LENT = "-- usr/lib/wsl/lib/libnvidia-ml.so.1 --\n-- usr/lib/wsl/lib/libcuda.so.1 --\n"


@pytest.mark.parametrize(
    "root",
    [
        "-- usr/lib/x86_64-linux-gnu/libcuda.so.1 --\n",
        "-- sys/module/nvidia/version --\n550.1\n",
        "-- usr/bin/nvidia-smi --\n",
        "-- var/lib/dpkg/info/libnvidia-compute-535-server:amd64.list --\n",
        "-- etc/ld.so.cache --\nlibcuda.so.1 /opt/nvidia/libcuda.so.1\n",
    ],
)
def test_a_linux_driver_in_wsl(tmp_path: Path, root: str) -> None:
    base = f"-- dev/dxg device --\n{_LENT}"
    reply = present(gpu(0, minor=None))
    found = nvidia.probe(machine(tmp_path, base + root, nvml=reply, release=WSL), 1.0).fact
    assert [item.finding for item in found.disagreements] == ["DSH-NV-031"]
    assert "inside WSL" in (found.detail or "")


@pytest.mark.parametrize(
    "root",
    [
        "-- usr/lib/x86_64-linux-gnu/libcuda.so.1 -> /usr/lib/wsl/lib/libcuda.so.1 --\n",
        "-- usr/bin/nvidia-smi -> /usr/lib/wsl/lib/nvidia-smi --\n",
        "-- etc/ld.so.cache --\nlibcuda.so.1 /usr/local/cuda-12.6/compat/libcuda.so.1\n",
        "-- var/lib/dpkg/info/nvidia-container-toolkit.list --\n",
        "-- var/lib/dpkg/info/nvidia-cuda-toolkit.list --\n",
        "-- .dockerenv --\n-- usr/lib/x86_64-linux-gnu/libcuda.so.1 --\n",
    ],
)
def test_what_is_no_linux_driver(tmp_path: Path, root: str) -> None:
    base = f"-- dev/dxg device --\n{_LENT}"
    reply = present(gpu(0, minor=None))
    found = nvidia.probe(machine(tmp_path, base + root, nvml=reply, release=WSL), 1.0).fact
    assert (found.disagreements, found.detail) == ((), None)


def test_a_linux_driver_outside_wsl_is_where_it_belongs(tmp_path: Path) -> None:
    root = "-- usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 --\n-- usr/bin/nvidia-smi --\n"
    found = nvidia.probe(machine(tmp_path, root), 1.0).fact
    assert found.disagreements == ()


def test_windows_driver_without_an_answer_is_no_zero(tmp_path: Path) -> None:
    root = f"-- dev/dxg device --\n{_LENT}"
    refused = {"state": "error", "code": 9, "detail": "Driver Not Loaded"}
    found = nvidia.probe(machine(tmp_path, root, nvml=refused, release=WSL), 1.0).fact
    assert found.state == "error"
