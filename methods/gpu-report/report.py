"""What this job sees of its GPUs, as one JSON object: variables, device files, what drivers say."""

from __future__ import annotations

import csv
import glob
import os
import stat
import subprocess  # noqa: TID251 -- runs in a job, not in dsHPC
import sys

import gpu

VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "SLURM_JOB_ID",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "SLURM_GPUS_ON_NODE",
)
COLUMNS = ("index", "name", "uuid", "memory.total", "driver_version")
DEADLINE_S = 60  # of nvidia-smi, which takes long where the driver is not kept loaded
AMD = "0x1002"


def device_files() -> list[str]:
    """Character devices under the names that GPU drivers use."""
    names = [name for pattern in gpu.FILES for name in glob.glob(pattern)]
    return sorted(name for name in names if stat.S_ISCHR(os.stat(name).st_mode))


def nvidia() -> dict[str, object]:
    """What NVIDIA's driver says of the GPUs that it shows here, which may be more than the job's."""
    asked = f"--query-gpu={','.join(COLUMNS)}"
    argv = ["nvidia-smi", asked, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except FileNotFoundError:
        return {"gpus": [], "why": "There is no nvidia-smi here."}
    except subprocess.TimeoutExpired:
        return {"gpus": [], "why": f"nvidia-smi did not answer within {DEADLINE_S} s."}
    if done.returncode:
        return {"gpus": [], "why": (done.stdout + done.stderr).strip()}
    lines = csv.reader(done.stdout.splitlines(), skipinitialspace=True)
    found = [dict(zip(COLUMNS, line, strict=False)) for line in lines]
    mine = os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
    return {"gpus": [{**each, "of_this_job": each.get("uuid") in mine} for each in found]}


def amd() -> list[dict[str, str | None]]:
    """What AMD's driver says in /sys of the machine's GPUs."""
    found = []
    for device in sorted(glob.glob("/sys/class/drm/renderD*/device")):
        if text(f"{device}/vendor") == AMD:
            node = os.path.basename(os.path.dirname(device))
            names = ("product_name", "unique_id", "mem_info_vram_total")
            said = {name: text(f"{device}/{name}") for name in names}
            found.append({"device_file": f"/dev/dri/{node}", **said})
    return found


def text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return None


def main() -> int:
    gpu.write(
        {
            "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
            "device_files": device_files(),
            "why_none": gpu.why_none() or None,
            "nvidia": nvidia(),
            "amd": amd(),
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
