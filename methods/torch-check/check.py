"""Can PyTorch compute on this job's GPU? Its version, the GPU, and a product made on both."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import gpu

INSTALL = """\
Put it into the cluster's image, for all jobs (some 6 GB). Outside of jobs, in the project folder:
  dshpc env add torch
  dshpc env lock
  configure-environment
  dshpc method run torch-check --wait
Or into a folder of the work folder, for those that name it:
  python3 -m pip install --target {folder} --python-version {version} --only-binary=:all: torch
  dshpc method run torch-check -p packages={folder} --wait"""


def how_to_install() -> str:
    jobs_of_user = os.path.dirname(os.environ["JOB_WORKSPACE"])
    work = os.path.dirname(os.path.dirname(jobs_of_user))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return INSTALL.format(folder=shlex.quote(f"{work}/python"), version=version)


def about(torch: Any) -> dict[str, Any]:
    """What this PyTorch is, and what it sees."""
    report = {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,  # AMD's PyTorch has this in place of `cuda`
        "available": torch.cuda.is_available(),
        "gpus": [],
    }
    if report["available"]:
        for number in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(number)
            report["gpus"].append(
                {
                    "name": properties.name,
                    "capability": f"{properties.major}.{properties.minor}",
                    "memory_mib": properties.total_memory >> 20,
                }
            )
    return report


def why_not(torch: Any) -> str:
    """Why there is no GPU for it."""
    if why := gpu.why_none():
        return why
    if not torch.version.cuda and not torch.version.hip:
        return f"PyTorch {torch.__version__} is built for the CPU alone."
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"PyTorch says: {error}"
    return "PyTorch finds none, and does not say why."


def product_is_right(torch: Any, device: str) -> bool:
    """Of whole numbers: the sums are exact on every device."""
    x = torch.arange(1_000_000).reshape(1000, 1000) * 7919 % 17 - 8
    x = x.to(torch.float32)
    there = x.to(device)
    return bool(torch.equal((there @ there).cpu(), x @ x))


def main() -> int:
    given = gpu.parameters()
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library that it loads is missing
        gpu.write({"torch": None, "why": f"PyTorch cannot be used: {error}."})
        sys.exit(f"PyTorch cannot be used: {error}.\n{how_to_install()}")
    report = about(torch)
    report["device"] = "cuda:0" if report["available"] else "cpu"
    report["why"] = None if report["available"] else why_not(torch)
    report["product_is_right"] = product_is_right(torch, report["device"])
    gpu.write(report)
    if not report["product_is_right"]:
        sys.exit(f"The product on {report['device']} is wrong.")
    if given["require_gpu"] and not report["available"]:
        sys.exit(f"PyTorch can use no GPU here. {report['why']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
