"""Whether the packages of methods can use the GPUs: by the lock, on machines of each maker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup import checkup
from dshpc_setup.diagnose import Finding, diagnose
from dshpc_setup.environment.model import Lock, Wheel
from dshpc_setup.pasted import told
from dshpc_setup.project.folder import Project
from tests.unit.diagnose.known import known
from tests.unit.diagnose.tables import text

ID = "DSH-PT-060"
NVIDIA, AMD, NONE = "workstation-rtx4090", "mi210x4-xgmi", "vm-no-gpu"


def finding(machine: str, *packages: str | None) -> Finding:
    about = known(machine)
    locked = None if packages == (None,) else tuple(each for each in packages if each)
    seen = replace(about.observed, packages=locked)
    return next(each for each in diagnose(replace(about, observed=seen)) if each.id == ID)


@pytest.mark.parametrize(
    ("machine", "packages", "state"),
    [
        (NVIDIA, ("torch 2.9.0+cpu",), "warn"),
        (NVIDIA, ("torch 2.9.0",), "ok"),
        (NVIDIA, ("torch 2.9.0+cu128",), "ok"),
        (NVIDIA, ("torch 2.9.0+rocm6.4",), "warn"),
        (AMD, ("torch 2.9.0+rocm6.4",), "ok"),
        (AMD, ("torch 2.9.0+cu128",), "warn"),
        ("mixed-h100-t4", ("torch 2.9.0+cu128",), "ok"),
        (NVIDIA, ("jax 0.9.0", "jaxlib 0.9.0"), "warn"),
        (NVIDIA, ("jax 0.9.0", "jax_cuda13_plugin 0.9.0"), "ok"),
        (AMD, ("jax 0.9.0", "jax_rocm7_plugin 0.9.0"), "ok"),
        (NVIDIA, ("tensorflow 2.20.0",), "warn"),
        (NVIDIA, ("tensorflow 2.20.0", "nvidia_cuda_runtime_cu12 12.5.82"), "ok"),
        (NVIDIA, ("tensorflow_cpu 2.20.0", "nvidia_cuda_runtime_cu12 12.5.82"), "warn"),
        (NVIDIA, ("numpy 2.3.0", "torchvision 0.24.0+cpu"), "ok"),
        (NVIDIA, (), "ok"),
        (NVIDIA, (None,), "skipped"),
        (NONE, ("torch 2.9.0+cpu",), "skipped"),
    ],
)
def test_what_is_locked(machine: str, packages: tuple[str | None, ...], state: str) -> None:
    found = finding(machine, *packages)
    assert found.state == state
    if state == "warn":
        assert str(packages[0]).split()[0].replace("_", "-") in text(found)
        assert "dshpc env lock" in text(found)


def test_the_lock_of_the_project_is_read(tmp_path: Path) -> None:
    project = Project(tmp_path)
    wheel = Wheel("torch", "2.9.0+cpu", "torch-2.9.0+cpu-cp313-cp313-linux_x86_64.whl", "0" * 64)
    lock = Lock("3.13", "amd64", {"python": (), "apt": (), "r": ()}, (wheel,))
    assert checkup.locked_packages(None) is None
    assert checkup.locked_packages(project) is None
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/lock.json").write_text(json.dumps(lock.to_json()))
    assert checkup.locked_packages(project) == ("torch 2.9.0+cpu",)
    (tmp_path / "environment/lock.json").write_text("{")
    assert checkup.locked_packages(project) is None


@pytest.mark.parametrize(
    "said",
    [
        "AssertionError: Torch not compiled with CUDA enabled",
        "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory",
        "OSError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "Could not load dynamic library 'libcudart.so.10.1'; dlerror: libcudart.so.10.1: cannot open",
        "ImportError: libcublas.so.11: cannot open shared object file: No such file or directory",
        "Could not load library libcudnn_cnn_infer.so.8: cannot open shared object file: No such file",
        "ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
        "ImportError: librocblas.so.4: cannot open shared object file: No such file or directory",
        "Cannot dlopen some GPU libraries. Skipping registering GPU devices...",
        "An NVIDIA GPU may be present on this machine, but a CUDA-enabled jaxlib is not installed.",
        "RuntimeError: Unable to load CUDA. Is it installed?",
        "UserWarning: The installed version of bitsandbytes was compiled without GPU support.",
        "bash: nvcc: command not found",
        "zsh: command not found: nvcc",
        "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "The detected CUDA version (12.4) mismatches the version that was used to compile PyTorch (11.8).",
        "ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister",
        "/usr/bin/ld: cannot find -lcudart: No such file or directory",
        "ModuleNotFoundError: No module named 'torch'",
    ],
)
def test_what_programs_say_of_it(said: str) -> None:
    found = told(
        f'Traceback (most recent call last):\n  File "x.py", line 3, in <module>\n{said}\n'
    )
    assert found is not None
    assert found.finding == ID


@pytest.mark.parametrize(
    ("said", "finding"),
    [
        ("libcuda.so.1: cannot open shared object file: No such file or directory", "DSH-SL-022"),
        (
            "libnvidia-ml.so.1: cannot open shared object file: no such file or directory",
            "DSH-NV-006",
        ),
        (
            "ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
            None,
        ),
        ("ModuleNotFoundError: No module named 'torch.hub.extras'", None),
        ("ModuleNotFoundError: No module named 'requests'", None),
        ("this library is compiled without debug symbols", None),
        ("CUDA error: no CUDA-capable device is detected", "DSH-SL-022"),
    ],
)
def test_what_is_said_of_the_driver_and_of_others(said: str, finding: str | None) -> None:
    found = told(said)
    assert (found.finding if found else None) == finding
