#!/usr/bin/env python3
"""How large the image without GPU plugins is, against its limit and against its base.

    python benchmarks/image_size.py [--image TAG]

Without --image it is built, in a folder and under a name of its own that are removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from side_by_side import limited, program, project_at

LIMIT_MB = 300
LABEL = "org.dshpc.gpu-type"


def inspect(kind: str, name: str) -> dict[str, Any]:
    """What the engine knows of an image or a container."""
    done = subprocess.run(
        ["docker", kind, "inspect", name], capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    found: dict[str, Any] = json.loads(done.stdout)[0]
    return found


def image_of_project(folder: Path) -> str:
    """The image that the project's container runs."""
    return str(inspect("container", project_at(folder).runtime()["container"])["Image"])


def base_image() -> str:
    """The base that the product made, else the registry's."""
    listed = ["docker", "images", "-q", "dshpc-base"]
    made = subprocess.run(listed, capture_output=True, text=True, timeout=60, check=True)
    return (made.stdout.split() or ["debian:trixie-slim"])[0]


def measure(image: str) -> int:
    found = inspect("image", image)
    built_for = (found["Config"]["Labels"] or {}).get(LABEL)
    if built_for != "none":
        raise SystemExit(f"{image} was built for GPU_TYPE {built_for}, not none.")
    size, base = found["Size"] / 1e6, inspect("image", base_image())["Size"] / 1e6
    print(f"image size {size:.0f} MB on a base of {base:.0f} MB: {size / base:.2f} of it")
    return int(limited("image size", size, "MB", most=LIMIT_MB))


def built(folder: str) -> str:
    """The tag of an image that is built now, for no GPU."""
    flags = ["--yes", "--gpu", "none", "--no-start", "--dir", folder, "--prefix", "dshpc-size"]
    subprocess.run(
        [program("configure-environment"), *flags], stdout=sys.stderr, timeout=1800, check=True
    )
    return "dshpc-size-slurm:none"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--image", help="tag or id of an image that was built for GPU type none")
    choice = parser.parse_args()
    if choice.image:
        return measure(choice.image)
    with tempfile.TemporaryDirectory() as folder:
        tag = built(folder)
        try:
            return measure(tag)
        finally:
            subprocess.run(["docker", "rmi", tag], capture_output=True, timeout=60, check=True)


if __name__ == "__main__":
    sys.exit(main())
