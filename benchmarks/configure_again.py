"""`configure-environment` again with nothing changed, against `docker compose up -d` again.

    python benchmarks/configure_again.py [--dir PROJECT]

The second is what a person types to make sure that all is up; it looks at nothing but its own file.
The limit is on the seconds: at most 3 on two cores.
"""

from __future__ import annotations

import subprocess
import sys

from side_by_side import arguments, compare, program, project_at

MOST_S = 3.0


def main() -> int:
    asked = arguments(__doc__, 5, project=True)
    project = project_at(asked.dir)
    return compare(
        "configure-environment again",
        [program("configure-environment"), "--yes", "--dir", str(project.folder)],
        [*compose(), "-p", project.runtime()["prefix"], "up", "-d", "--no-build"],
        most_s=MOST_S,
        rounds=asked.rounds,
        cwd=project.folder,
    )


def compose() -> list[str]:
    """The compose tool of this machine, v2 before v1."""
    v2 = subprocess.run(
        ["docker", "compose", "version"], capture_output=True, check=False, timeout=30
    )
    return ["docker", "compose"] if v2.returncode == 0 else ["docker-compose"]


if __name__ == "__main__":
    sys.exit(main())
