from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Cpu, Engine, GpuDevice, Gpus, HostFacts, Memory, Platform
from dshpc_setup.passthrough import cuda, findings
from dshpc_setup.passthrough.image import needs, unmet

H100 = GpuDevice(0, "nvidia", "NVIDIA H100 80GB HBM3", driver_version="550.163.01", compute="9.0")
RTX4090 = GpuDevice(
    0, "nvidia", "NVIDIA GeForce RTX 4090", driver_version="550.163.01", compute="8.9"
)
RTX5090 = GpuDevice(
    0, "nvidia", "NVIDIA GeForce RTX 5090", driver_version="580.65.06", compute="12.0"
)
V100 = GpuDevice(0, "nvidia", "Tesla V100-SXM2-16GB", driver_version="580.65.06", compute="7.0")
A6000 = GpuDevice(0, "nvidia", "NVIDIA RTX A6000", driver_version="550.163.01", compute="8.6")
MI300X = GpuDevice(0, "amd", "MI300X", compute="gfx942")

# The variable of the images of CUDA 13.0, shortened.
REQUIRE_13 = (
    "cuda>=13.0 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536 "
    "brand=geforce,driver>=535,driver<536 brand=tesla,driver>=550,driver<551 "
    "brand=nvidia,driver>=550,driver<551 brand=geforce,driver>=550,driver<551 "
    "brand=nvidiartx,driver>=550,driver<551 brand=quadrortx,driver>=550,driver<551"
)


def machine(gpu: GpuDevice, offers: str | None = "12.4", kind: str = "linux") -> HostFacts:
    return HostFacts(
        Platform(kind),  # type: ignore[arg-type]
        Cpu(8),
        Memory(16000),
        Gpus("present", (gpu,), driver_version=gpu.driver_version, cuda_version=offers),
        Engine("present"),
    )


def found(
    env: dict[str, str], gpu: GpuDevice, offers: str | None = "12.4"
) -> list[tuple[str | None, str]]:
    told = unmet(env, machine(gpu, offers), (gpu,))
    assert all(item.cause.says and not item.cause.says.endswith(".") for item in told)
    return [(item.cause.finding, item.severity) for item in told]


@pytest.mark.parametrize(
    ("env", "gpu", "offers", "expected"),
    [
        # native
        ({}, H100, "12.4", []),
        ({"CUDA_VERSION": "12.4.1"}, H100, "12.4", []),
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.4", "CUDA_VERSION": "12.4.1"}, H100, "12.4", []),
        # refused by the requirement, or by the version of a legacy image
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=12.6"}, H100, "12.4", [(findings.IMAGE_TOO_NEW, "error")]),
        ({"CUDA_VERSION": "12.6.2.004"}, H100, "12.4", [(findings.IMAGE_TOO_NEW, "error")]),
        ({"CUDA_VERSION": "v12.4.0"}, H100, "12.4", []),
        ({"NVIDIA_REQUIRE_CUDA": "arch>=9.0"}, RTX4090, "12.4", [(findings.REQUIREMENT_UNMET, "error")]),
        ({"NVIDIA_REQUIRE_CUDA": "arch>=9.0"}, H100, "12.4", []),
        ({"NVIDIA_REQUIRE_X": "driver>=560"}, H100, "12.4", [(findings.REQUIREMENT_UNMET, "error")]),
        ({"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all"}, H100, "12.4", []),
        ({"NVIDIA_REQUIRE_CUDA": "nonsense"}, H100, "12.4", [(findings.REQUIREMENT_UNREADABLE, "error")]),
        ({"CUDA_VERSION": "latest"}, H100, "12.4", [(findings.REQUIREMENT_UNREADABLE, "error")]),
        # minor-version compatibility
        (
            {"NVIDIA_REQUIRE_CUDA": "cuda>=12.6 driver>=550", "CUDA_VERSION": "12.6.0"},
            H100, "12.4", [(findings.IMAGE_TOO_NEW, "warn")],
        ),
        # forward compatibility: data-centre cards, cards that may have it, cards that have not
        (
            {"NVIDIA_REQUIRE_CUDA": REQUIRE_13, "CUDA_VERSION": "13.0.0"},
            H100, "12.4", [(findings.NO_FORWARD_COMPATIBILITY, "warn")],
        ),
        (
            {"NVIDIA_REQUIRE_CUDA": REQUIRE_13, "CUDA_VERSION": "13.0.0"},
            A6000, "12.4", [(findings.NO_FORWARD_COMPATIBILITY, "warn")],
        ),
        (
            {"NVIDIA_REQUIRE_CUDA": REQUIRE_13, "CUDA_VERSION": "13.0.0"},
            RTX4090, "12.4", [(findings.NO_FORWARD_COMPATIBILITY, "error")],
        ),
        (
            {"NVIDIA_REQUIRE_CUDA": REQUIRE_13, "CUDA_VERSION": "13.0.0", "NVIDIA_DISABLE_REQUIRE": "1"},
            RTX4090, "12.4", [(findings.NO_FORWARD_COMPATIBILITY, "warn")],
        ),
        # not checked by the toolkit when switched off; "yes" is no boolean of Go
        ({"CUDA_VERSION": "12.6", "NVIDIA_DISABLE_REQUIRE": "true"}, H100, "12.4",
         [(findings.IMAGE_TOO_NEW, "warn")]),
        ({"CUDA_VERSION": "12.6", "NVIDIA_DISABLE_REQUIRE": "yes"}, H100, "12.4",
         [(findings.IMAGE_TOO_NEW, "error")]),
        # compute capability
        ({"CUDA_VERSION": "12.6"}, RTX5090, "13.0", [(findings.GPU_NEWER_THAN_IMAGE, "warn")]),
        ({"CUDA_VERSION": "12.8"}, RTX5090, "13.0", []),
        ({"CUDA_VERSION": "11.4"}, RTX4090, "12.4", []),  # code for 8.6 runs on 8.9
        ({"CUDA_VERSION": "11.4"}, H100, "12.4", [(findings.GPU_NEWER_THAN_IMAGE, "warn")]),
        # a demand is no word about what it was made with
        ({"NVIDIA_REQUIRE_CUDA": "cuda>=11.4"}, H100, "12.4", []),
        ({"CUDA_VERSION": "13.0"}, V100, "13.0", [(findings.GPU_TOO_OLD_FOR_IMAGE, "warn")]),
        ({"CUDA_VERSION": "12.9"}, V100, "13.0", []),
        # PyTorch's list
        ({"TORCH_CUDA_ARCH_LIST": "7.0 7.5 8.0 8.6"}, H100, "12.4",
         [(findings.GPU_NEWER_THAN_IMAGE, "warn")]),
        ({"TORCH_CUDA_ARCH_LIST": "7.5;8.0;8.6+PTX"}, H100, "12.4", []),
        ({"TORCH_CUDA_ARCH_LIST": "8.0;9.0a"}, H100, "12.4", []),
        ({"TORCH_CUDA_ARCH_LIST": "8.0 8.6"}, RTX4090, "12.4", []),
        ({"TORCH_CUDA_ARCH_LIST": "8.0 8.6"}, V100, "13.0", [(findings.GPU_TOO_OLD_FOR_IMAGE, "warn")]),
        ({"TORCH_CUDA_ARCH_LIST": "10.0a"}, H100, "12.4", [(findings.GPU_TOO_OLD_FOR_IMAGE, "warn")]),
        ({"TORCH_CUDA_ARCH_LIST": "Ampere"}, H100, "12.4", []),
        ({"TORCH_CUDA_ARCH_LIST": ""}, H100, "12.4", []),
        # what is handed over
        ({"NVIDIA_DRIVER_CAPABILITIES": "graphics,video"}, H100, "12.4",
         [(findings.NO_COMPUTE_CAPABILITY, "warn")]),
        ({"NVIDIA_DRIVER_CAPABILITIES": "compute, utility"}, H100, "12.4", []),
        ({"NVIDIA_DRIVER_CAPABILITIES": "all"}, H100, "12.4", []),
        ({"NVIDIA_DRIVER_CAPABILITIES": ""}, H100, "12.4", []),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, H100, "12.4", [(findings.IMAGE_HIDES_GPUS, "warn")]),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, H100, "12.4", [(findings.IMAGE_HIDES_GPUS, "warn")]),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, H100, "12.4", []),
        # nothing is known of the driver, or the GPU is another vendor's
        ({"CUDA_VERSION": "13.0"}, MI300X, None, []),
        ({"CUDA_VERSION": "12.4"}, replace(H100, driver_version=None), None, []),
    ],
)  # fmt: skip
def test_what_an_image_does_not_get(
    env: dict[str, str], gpu: GpuDevice, offers: str | None, expected: list[tuple[str, str]]
) -> None:
    assert found(env, gpu, offers) == expected


def test_errors_stand_first_and_say_both_versions() -> None:
    env = {"CUDA_VERSION": "12.9", "NVIDIA_VISIBLE_DEVICES": "void"}
    first, second = unmet(env, machine(H100), (H100,))
    assert (first.severity, second.severity) == ("error", "warn")
    assert first.cause.says == (
        "the image needs CUDA 12.9, and the driver 550.163.01 offers CUDA 12.4"
    )
    assert first.cause.fix


def test_every_selected_gpu_must_do() -> None:
    facts = machine(H100)
    env = {"NVIDIA_REQUIRE_CUDA": "arch>=9.0"}
    assert unmet(env, facts, (H100,)) == ()
    (refused,) = unmet(env, facts, (H100, RTX4090))
    assert "RTX 4090" in refused.cause.says


def test_the_driver_s_version_tells_where_nvml_is_down() -> None:
    env = {"CUDA_VERSION": "12.6"}
    assert found(env, H100, None) == [(findings.IMAGE_TOO_NEW, "error")]
    windows = machine(H100, None, "wsl2")  # drivers of Windows are numbered otherwise
    assert unmet(env, windows, (H100,)) == ()


@pytest.mark.parametrize(
    ("driver", "offers"),
    [
        ("418.43", "10.1"),
        ("470.256.02", "11.4"),
        ("510.47.03", "11.6"),
        ("515.43.04", "11.7"),
        ("525.60.13", "12.0"),
        ("535.54.03", "12.2"),
        ("550.54.14", "12.4"),
        ("565.57.01", "12.7"),
        ("570.124.06", "12.8"),
        ("590.48.01", "13.1"),
        ("595.71.05", "13.2"),
        ("610.57.04", "13.3"),
        ("999.1", "13.3"),
        ("340.108", None),
        ("unknown", None),
    ],
)
def test_the_cuda_of_a_driver(driver: str, offers: str | None) -> None:
    card = replace(H100, driver_version=driver)
    assert cuda.offered(machine(card, None)) == offers


def test_jetson_counts_its_drivers_otherwise() -> None:
    card = replace(H100, driver_version="540.4.0", driver="nvgpu")
    assert cuda.offered(machine(card, None)) is None


@pytest.mark.parametrize(
    ("wanted", "have", "driver", "reach"),
    [
        ("12.4.1", "12.4", "550.54.14", "native"),
        ("11.8", "12.4", "550.54.14", "native"),
        ("12.8", "12.4", "550.54.14", "minor"),
        ("12.8", "12.0", "525.60.12", "forward"),
        ("11.8", "11.0", "450.51", "forward"),
        ("11.8", "11.0", "450.80.02", "minor"),
        ("13.0", "12.4", "550.54.14", "forward"),
        ("10.2", "10.1", "418.87", "no"),
    ],
)
def test_how_far_a_driver_reaches(wanted: str, have: str, driver: str, reach: str) -> None:
    assert cuda.reach(wanted, have, driver) == reach


@pytest.mark.parametrize(
    ("version", "capability", "known"),
    [
        ("11.8", "9.0", True),
        ("11.7", "9.0", False),
        ("12.8", "12.1", True),  # code for 12.0
        ("12.7", "12.0", False),
        ("13.0", "7.0", True),  # that it was dropped is another question
        ("13.3", "14.0", None),  # newer than this table
        ("12.4", "14.0", False),
        ("12.4", "gfx942", None),
        ("x", "9.0", None),
    ],
)
def test_which_cuda_knows_a_gpu(version: str, capability: str, known: bool | None) -> None:
    assert cuda.knows(version, capability) is known


@pytest.mark.parametrize(
    ("version", "capability", "lowest"),
    [
        ("13.0", "7.0", "7.5"),
        ("13.0", "7.5", None),
        ("12.9", "5.0", None),
        ("12.0", "3.7", "5.0"),
        ("11.8", "3.5", None),
        ("11.0", "3.0", "3.5"),
        ("8.0", "2.0", None),
        ("13.0", "gfx942", None),
    ],
)
def test_which_cuda_has_dropped_a_gpu(version: str, capability: str, lowest: str | None) -> None:
    assert cuda.dropped(version, capability) == lowest


@pytest.mark.parametrize(
    ("name", "brand", "data_centre"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia", True),
        ("NVIDIA A100-SXM4-80GB", "tesla", True),
        ("Tesla T4", "tesla", True),
        ("NVIDIA GeForce RTX 4090", "geforce", False),
        ("NVIDIA TITAN V", "titan", False),
        ("Quadro RTX 6000", "quadrortx", False),
        ("NVIDIA RTX A6000", "nvidiartx", False),
        ("NVIDIA A1000 Laptop GPU", None, False),
        ("Graphics Device", None, False),
    ],
)
def test_what_a_card_is_by_its_name(name: str, brand: str | None, data_centre: bool) -> None:
    told = cuda.brands(name)
    assert told is None if brand is None else told is not None and brand in told
    assert cuda.is_data_centre(replace(H100, name=name)) is data_centre


NAMES = st.sampled_from(
    ("CUDA_VERSION", "NVIDIA_REQUIRE_CUDA", "NVIDIA_REQUIRE_X", "NVIDIA_DISABLE_REQUIRE",
     "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES", "TORCH_CUDA_ARCH_LIST")
)  # fmt: skip
VALUES = st.text() | st.text("cudarivebn<>=!,. +PTX0123456789;")


@given(
    st.dictionaries(NAMES, VALUES),
    st.sampled_from((H100, RTX4090, RTX5090, V100, MI300X)),
    st.none() | st.sampled_from(("9.0", "12.4", "13.3", "")) | st.text(max_size=5),
    st.none() | st.text(max_size=8),
)
def test_any_environment_is_taken(
    env: dict[str, str], gpu: GpuDevice, offers: str | None, compute: str | None
) -> None:
    card = replace(gpu, compute=compute)
    told = unmet(env, machine(card, offers), (card,))
    assert all(item.cause.finding in findings.TITLES for item in told)
    if gpu.vendor == "amd":
        assert told == ()
    needs(env)
