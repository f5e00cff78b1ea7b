"""Whether the packages that methods import can use the GPUs here.

What comes with a program is no driver's matter: PyTorch, JAX and TensorFlow are built with CUDA or without,
and bring CUDA's libraries as packages of their own.

Sources: PyTorch's install page and PEP 440 (local versions: 2.9.0+cpu, +cu128, +rocm6.4); JAX's installation
guide (jax-cuda12-plugin, jax-rocm7-plugin); TensorFlow's (tensorflow[and-cuda], tensorflow-cpu).
"""

from __future__ import annotations

import re

from dshpc_setup import gpu_vendors
from dshpc_setup.diagnose.model import Check, CheckInput, Verdict, fine, not_here, warning
from dshpc_setup.errors import Fix
from dshpc_setup.facts import Vendor

WITHOUT_GPU = "DSH-PT-060"


def _packages(known: CheckInput) -> Verdict:
    """By the lock of the project: what jobs install for themselves is not seen."""
    locked = known.observed.packages
    if locked is None:
        return not_here("No packages of methods are locked.")
    here = {gpu.vendor for gpu in known.facts.gpus.devices if not gpu.problems}
    if known.facts.gpus.simulated or not here:
        return not_here("There is no GPU for them.")
    versions = {name.replace("_", "-"): of for name, _, of in (it.rpartition(" ") for it in locked)}
    short = [*_torch(versions, here), *_jax(versions, here), *_tensorflow(versions, here)]
    if not short:
        return fine()
    return warning(
        "A package of the methods cannot use the GPUs of this machine: programs that import it compute on "
        "the CPUs, or end.",
        *short,
        fix=(
            Fix("Take the build for this machine's GPUs: its install page names the package or the index, "
                "which PIP_INDEX_URL tells dshpc env lock"),
            Fix("Then lock it again", "dshpc env lock", step="after"),
            Fix("Build the image with it", "configure-environment"),
        ),
    )  # fmt: skip


def _torch(versions: dict[str, str], here: set[Vendor]) -> list[str]:
    version = versions.get("torch", "")
    builds: list[tuple[str, str, str]] = [("", r"\+cpu\b", "without GPUs")]
    for each in gpu_vendors.all_of_them():
        if each.python is not None:
            builds.append((each.name, each.python.torch, f"for {each.label}'s GPUs"))
    return [
        f"torch {version}: built {words}"
        for vendor, pattern, words in builds
        if re.search(pattern, version) and vendor not in here
    ]


def _jax(versions: dict[str, str], here: set[Vendor]) -> list[str]:
    known = [(each.name, each.python.jax) for each in gpu_vendors.all_of_them() if each.python]
    able = {name: jax for name, jax in known if jax is not None}
    plugins = "|".join(name for name, _ in able.values())
    plugin = any(re.match(rf"jax-(?:{plugins})\d+-plugin", name) for name in versions)
    if "jax" not in versions or plugin or not here & able.keys():
        return []
    extras = ", ".join(f"jax[{extra}]" for _, extra in able.values())
    return [f"jax {versions['jax']}: without a plugin for GPUs ({extras})"]


def _tensorflow(versions: dict[str, str], here: set[Vendor]) -> list[str]:
    found = [name for name in ("tensorflow", "tensorflow-cpu") if name in versions]
    runtime = any(re.match(r"nvidia-cuda-runtime", name) for name in versions)
    cuda = any(map(gpu_vendors.has_cuda, here))
    if not found or not cuda or (found[0] == "tensorflow" and runtime):
        return []
    return [f"{found[0]} {versions[found[0]]}: without CUDA's libraries (tensorflow[and-cuda])"]


CHECKS: tuple[Check, ...] = (
    Check(WITHOUT_GPU, "passthrough", "The packages of methods can use the GPUs",
          "A program's own packages cannot use the GPU (PyTorch without CUDA, libcudart not found)",
          _packages, needs=("DSH-GP-001",)),
)  # fmt: skip
