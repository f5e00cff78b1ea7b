"""What this job has of GPUs, and a library that can compute on them.

The same file lies in each method that uses it: a folder can be copied as it is.
"""

from __future__ import annotations

import glob
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

FILES = ("/dev/nvidia[0-9]*", "/dev/dri/renderD*", "/dev/dxg")
_CHOSEN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
_NULL = os.makedev(1, 3)


@dataclass(frozen=True)
class Found:
    """`module` is torch, cupy or numpy, or None where plain Python has to do."""

    module: Any
    library: str
    device: str  # "gpu" or "cpu"
    name: str | None = None  # the GPU's
    why: str | None = None  # why it is no GPU

    def told(self) -> dict[str, str | None]:
        return {"device": self.device, "name": self.name, "library": self.library, "why": self.why}


def why_none() -> str:
    """Why there can be no GPU, as far as Slurm and the device files tell; "" where they do not."""
    if not any(os.environ.get(name) for name in _CHOSEN):
        return "The job has no GPU from Slurm."
    files = sorted(name for pattern in FILES for name in glob.glob(pattern))
    if not files:
        return "Slurm gave the job a GPU, and no device file of one is here."
    for name in files:
        if os.stat(name).st_rdev == _NULL:
            return f"The GPUs are simulated ({name} is /dev/null): no driver answers."
    return ""


def find() -> Found:
    """The GPU by PyTorch or CuPy, else the CPU by NumPy or plain Python."""
    why = why_none()
    if not why:
        for look in (_torch, _cupy):
            found = look()
            if isinstance(found, Found):
                return found
            why = f"{why} {found}".strip()
    try:
        import numpy
    except ImportError:
        return Found(None, f"Python {sys.version.split()[0]}", "cpu", why=why)
    return Found(numpy, f"NumPy {numpy.__version__}", "cpu", why=why)


def _torch() -> Found | str:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library that it loads is missing
        return f"PyTorch cannot be used: {error}."
    library = f"PyTorch {torch.__version__}"
    if not torch.cuda.is_available():  # AMD's PyTorch says "cuda" of its GPUs, too
        return f"{library} finds no GPU that it can use."
    torch.set_default_device("cuda")
    return Found(torch, library, "gpu", torch.cuda.get_device_name(0))


def _cupy() -> Found | str:
    try:
        import cupy
    except (ImportError, OSError) as error:
        return f"CuPy cannot be used: {error}."
    library = f"CuPy {cupy.__version__}"
    try:
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"{library} finds no GPU that it can use: {error}."
    return Found(cupy, library, "gpu", name)


def parameters() -> dict[str, Any]:
    """Those of this run; packages that they name can be imported from then on."""
    with open(os.environ["PARAMS_FILE"], encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    packages = found.get("packages")
    if packages and not os.path.isdir(packages):
        sys.exit(f"packages: there is no folder {packages} here. Jobs see the work folder only.")
    if packages:
        sys.path.insert(0, packages)
    return found


def write(result: dict[str, Any]) -> None:
    """The result, into the workspace and the log."""
    text = json.dumps(result, indent=2) + "\n"
    path = os.path.join(os.environ["JOB_WORKSPACE"], "result.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    sys.stdout.write(text)
