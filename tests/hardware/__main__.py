"""The acceptance on a machine with real GPUs: `python -m tests.hardware DIR`, from the checkout.

It detects, test-runs every way to hand the GPUs to a container, sets a cluster up, runs a job on each
GPU and on each type, patches a compose file and runs it, and asks doctor. DIR gets what was seen: the
recorded machine (`--machine DIR/machine` replays it), every answer as JSON, and result.json. Exit code 0
where every step passed, 1 where one did not, 2 where there is no GPU. `--simulate PROFILE` rehearses it
without hardware, and says so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.hardware.acceptance import Acceptance, Given


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hardware", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new folder for what was seen")
    parser.add_argument("--simulate", default="", metavar="PROFILE", help="rehearse: h100:2")
    parser.add_argument("--image", default=None, help="a local image for the test containers")
    parser.add_argument("--engine", choices=("docker", "podman", "builtin"), default="docker")
    parser.add_argument(
        "--image-file",
        type=Path,
        default=None,
        help="for podman and builtin: what dshpc image save wrote",
    )
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    asked = parser.parse_args()
    if asked.folder.exists() and any(asked.folder.iterdir()):
        parser.error(f"{asked.folder} is not empty")
    asked.folder.mkdir(parents=True, exist_ok=True)
    file = None if asked.image_file is None else asked.image_file.resolve()
    given = Given(asked.simulate, asked.image, asked.engine, file, asked.keep)
    return Acceptance(asked.folder.resolve(), given).all_steps()


if __name__ == "__main__":
    sys.exit(main())
