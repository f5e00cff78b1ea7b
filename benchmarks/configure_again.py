"""`configure-environment` again with nothing changed, against `docker compose up -d` again.

    python benchmarks/configure_again.py [--dir PROJECT]

The second is what a person types to make sure that all is up; it looks at nothing but its own file.
The limit is on the seconds: at most 3 on two cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from side_by_side import arguments, compare

from dshpc_setup.project import need_project

MOST_S = 3.0


def main() -> int:
    parser = arguments(__doc__, 5)
    parser.add_argument("--dir", type=Path, default=Path.cwd(), metavar="PROJECT")
    options = parser.parse_args()
    project = need_project(options.dir.absolute(), {})
    program = Path(sys.executable).with_name("configure-environment")
    if not program.exists():
        parser.error(f"{program} is not there: run this with the Python of dshpc's environment")
    prefix = project.runtime()["prefix"]
    return compare(
        "configure-environment again",
        [str(program), "--yes", "--dir", str(project.folder)],
        [*compose(), "-p", prefix, "up", "-d", "--no-build"],
        most_s=MOST_S,
        rounds=options.rounds,
        cwd=project.folder,
        env=dict(os.environ),
    )


def compose() -> list[str]:
    """The compose tool of this machine, v2 before v1."""
    v2 = subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False, timeout=30
    )
    return ["docker", "compose"] if v2.returncode == 0 else ["docker-compose"]


if __name__ == "__main__":
    sys.exit(main())
