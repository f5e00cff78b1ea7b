"""`dshpc method run` against the plain sbatch call that it makes, and 1,000 sets as one array.

    python benchmarks/method_run.py [--dir PROJECT] [--method NAME]

The project is the folder where configure-environment ran, with its cluster running. The jobs are
cancelled at the end.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import arguments, timed

from dshpc_setup.project import need_project

MOST_MORE_S = 0.35
MOST_ARRAY_S = 3.0
SETS = 1000


def main() -> int:
    parser = arguments(__doc__, 15)
    parser.add_argument("--dir", type=Path, default=Path.cwd(), metavar="PROJECT")
    parser.add_argument("--method", default="gpu-report", metavar="NAME", help="takes no parameter")
    options = parser.parse_args()
    project = need_project(options.dir.absolute(), {})
    program = Path(sys.executable).with_name("dshpc")
    if not program.exists():
        parser.error(f"{program} is not there: run this with the Python of dshpc's environment")
    env = {**os.environ, "DSHPC_DIR": str(project.folder)}
    work = Path(project.runtime()["work"])
    run = [str(program), "method", "run", options.method, "--json"]
    call = json.loads(_said([*run, "--dry-run"], work, env))["sbatch"]
    # The same call, of a folder that is there
    call = [f"--chdir={work}" if word.startswith("--chdir=") else word for word in call]
    plain = [str(program), *call, "--wrap", "true"]
    pairs = [(timed(run, work, env), timed(plain, work, env)) for _ in range(options.rounds + 1)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs[1:], strict=True))
    print(f"dshpc method run: {ours * 1000:.0f} ms against {theirs * 1000:.0f} ms of its sbatch call, "
          f"median of {options.rounds}; {(ours - theirs) * 1000:+.0f} ms (at most "
          f"{MOST_MORE_S * 1000:.0f})")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "sets.json")
        table.write_text(json.dumps([{}] * SETS))
        array = timed([*run, "--array", str(table)], work, env)
    print(f"{SETS} parameter sets as one array: {array:.2f} s (at most {MOST_ARRAY_S:.0f})")
    _said([str(program), "scancel", "--me"], work, env)
    return int(ours - theirs > MOST_MORE_S or array > MOST_ARRAY_S)


def _said(argv: list[str], cwd: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
