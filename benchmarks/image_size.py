#!/usr/bin/env python3
"""How large the image without GPU plugins is.

    python benchmarks/image_size.py [--dir PROJECT | --image TAG]

The project is the folder where configure-environment ran, or one below it: its image is looked at.
Prints the size and its ratio to the limit; exit code 1 where it is larger. The image must have been
built for GPU_TYPE none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dshpc_setup.project import need_project

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
    project = need_project(folder.absolute(), {})
    return str(inspect("container", project.runtime()["container"])["Image"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--image", help="tag or id of the dsHPC image")
    parser.add_argument("--dir", type=Path, default=Path.cwd(), metavar="PROJECT")
    choice = parser.parse_args()
    image = choice.image or image_of_project(choice.dir)
    found = inspect("image", image)
    built_for = (found["Config"]["Labels"] or {}).get(LABEL)
    if built_for != "none":
        raise SystemExit(f"{image} was built for GPU_TYPE {built_for}, not none.")
    megabytes = found["Size"] / 1e6
    print(f"image size {megabytes:.0f} MB, ratio {megabytes / LIMIT_MB:.2f} to {LIMIT_MB} MB")
    return 0 if megabytes <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
