#!/usr/bin/env python3
"""How large the image without GPU plugins is.

    python3 benchmarks/image_size.py --image TAG

Prints the size and its ratio to the limit; exit code 1 where it is larger. The image must have been
built for GPU_TYPE none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

LIMIT_MB = 300
LABEL = "org.dshpc.gpu-type"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--image", required=True, help="tag or id of the dsHPC image")
    choice = parser.parse_args()
    done = subprocess.run(
        ["docker", "image", "inspect", choice.image],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr.strip())
    found = json.loads(done.stdout)[0]
    built_for = (found["Config"]["Labels"] or {}).get(LABEL)
    if built_for != "none":
        raise SystemExit(f"{choice.image} was built for GPU_TYPE {built_for}, not none.")
    megabytes = found["Size"] / 1e6
    print(f"image size {megabytes:.0f} MB, ratio {megabytes / LIMIT_MB:.2f} to {LIMIT_MB} MB")
    return 0 if megabytes <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
