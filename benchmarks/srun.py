"""`dshpc srun true` against `docker exec CONTAINER srun true`; and what telling a task its GPUs costs.

    python benchmarks/srun.py [--dir PROJECT]

The project is the folder where configure-environment ran, or one below it, with its cluster running.

The second part times `srun true` in three containers of the project's image, in turns: the one as
shipped, where a plugin tells each task its GPUs, one where Slurm's TaskProlog does (all that the plugin
saves), and one where nothing does.

Between them `dshpc srun true` on the built-in engine is timed against the same with Docker: a cluster of the
same image, made for it and removed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from beside import cluster
from changed import started, started_with, without
from image_size import image_of_project
from side_by_side import compare, limited, parser, program, project_at
from start import docker, removed

MOST = 1.8
MOST_BUILTIN = 1.2  # of the time with Docker
MOST_PLUGIN = 1.0  # of the time with TaskProlog
TASK_PROLOG = "TaskProlog=/usr/local/lib/dshpc/task-prolog\n"
TIMED = "began=$(date +%s%N) && srun --quiet true && ended=$(date +%s%N) && echo $((ended - began))"


def main() -> int:
    asked = parser(__doc__, 30, project=True)
    asked.add_argument("--prefix", default="dshpc-bench", help="names of the containers")
    options = asked.parse_args()
    project = project_at(options.dir)
    runtime = project.runtime()
    beyond = compare(
        "dshpc srun true",
        [program(), "srun", "true"],
        ["docker", "exec", runtime["container"], "srun", "true"],
        most=MOST,
        rounds=options.rounds,
        cwd=Path(runtime["work"]),
        env={**os.environ, "DSHPC_DIR": str(project.folder)},
    )
    beyond |= beside_docker(project.folder, options.prefix, options.rounds)
    return int(beyond | variants(image_of_project(options.dir), options.prefix, options.rounds))


def beside_docker(folder: Path, prefix: str, rounds: int) -> bool:
    """Whether a job on the built-in engine takes longer than it may."""
    with cluster(folder, "builtin", prefix) as own:
        docker_s = ["env", f"DSHPC_DIR={folder}", program(), "srun", "true"]
        return compare(
            "dshpc srun true, built-in engine against Docker",
            own.dshpc("srun", "true"),
            docker_s,
            most=MOST_BUILTIN,
            rounds=rounds,
            cwd=folder,
        )


def variants(image: str, prefix: str, rounds: int) -> bool:
    """Whether the plugin takes longer than what it is there in place of."""
    plugin, prolog, neither = names = [
        f"{prefix}-{name}" for name in ("plugin", "prolog", "neither")
    ]
    times: dict[str, list[float]] = {name: [] for name in names}
    with removed(*names), tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        folder.chmod(0o755)
        shipped = started(plugin, image)
        bare = without(shipped, "task-prolog")
        started_with(neither, image, bare, folder)
        started_with(prolog, image, TASK_PROLOG + bare, folder)
        for _ in range(rounds + 1):
            for name in names:
                times[name].append(int(docker("exec", name, "sh", "-c", TIMED)) / 1e9)
    ms = {name: [second * 1000 for second in each[1:]] for name, each in times.items()}
    print(f"srun true in the container, median (fastest) of {rounds}:")
    for title, name in (
        ("plugin, as shipped", plugin),
        ("TaskProlog", prolog),
        ("neither", neither),
    ):
        print(f"  {title:20} {median(ms[name]):4.0f} ms ({min(ms[name]):.0f} ms)")
    ratio = median(ms[plugin]) / median(ms[prolog])
    return limited("the plugin against TaskProlog, ratio", ratio, most=MOST_PLUGIN)


if __name__ == "__main__":
    sys.exit(main())
