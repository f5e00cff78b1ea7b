"""`dshpc srun true` against `docker exec CONTAINER srun true`, on the cluster that runs here.

    python benchmarks/srun.py [--dir PROJECT]

The project is the folder where configure-environment ran, or one below it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from side_by_side import arguments, compare

from dshpc_setup.project import need_project

MOST = 1.8


def main() -> int:
    parser = arguments(__doc__, 30)
    parser.add_argument("--dir", type=Path, default=Path.cwd(), metavar="PROJECT")
    options = parser.parse_args()
    project = need_project(options.dir.absolute(), {})
    runtime = project.runtime()
    program = Path(sys.executable).with_name("dshpc")
    if not program.exists():
        parser.error(f"{program} is not there: run this with the Python of dshpc's environment")
    return compare(
        "dshpc srun true",
        [str(program), "srun", "true"],
        ["docker", "exec", runtime["container"], "srun", "true"],
        most=MOST,
        rounds=options.rounds,
        cwd=Path(runtime["work"]),
        env={**os.environ, "DSHPC_DIR": str(project.folder)},
    )


if __name__ == "__main__":
    sys.exit(main())
