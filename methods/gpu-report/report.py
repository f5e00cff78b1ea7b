"""Print what this job sees of its GPUs, as one JSON object.

Run it with: dshpc srun --gres=gpu:1 python3 report.py
"""

from __future__ import annotations

import glob
import json
import os
import stat
import sys

VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "SLURM_JOB_ID",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "SLURM_GPUS_ON_NODE",
)


def device_files() -> list[str]:
    """Character devices under the names that GPU drivers use."""
    names = glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/dri/renderD*") + glob.glob("/dev/dxg")
    return sorted(name for name in names if stat.S_ISCHR(os.stat(name).st_mode))


def main() -> int:
    report = {
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "device_files": device_files(),
    }
    json.dump(report, sys.stdout, indent=2)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
