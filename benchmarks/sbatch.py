"""`sbatch` where its answer waits until the job is on the disk, against one where it does not.

    python benchmarks/sbatch.py [--dir PROJECT | --image TAG]

Two containers of the project's image: one as shipped, and one in which nothing is preloaded into
slurmctld (docs/decisions/0029-durable-jobs.md). In turns, some jobs are submitted one by one in one loop
in the container, which hold themselves in the queue. A round's jobs are cancelled before the next.
"""

from __future__ import annotations

import sys
from statistics import median

from changed import started
from image_size import image_of_project
from side_by_side import limited, parser
from start import docker, removed

MOST_MORE_S = 0.025
PRELOADED = "/usr/local/lib/dshpc/durable.so"
LOOP = """
began=$(date +%s%N)
for number in $(seq "$1"); do sbatch --quiet --hold -o /dev/null --wrap true || exit 1; done
ended=$(date +%s%N)
scancel --me
echo $((ended - began))
"""


def main() -> int:
    asked = parser(__doc__, 3, project=True)
    asked.add_argument("--image", help="tag or id of the dsHPC image")
    asked.add_argument("--prefix", default="dshpc-bench", help="names of the containers")
    asked.add_argument("--jobs", type=int, default=200, metavar="N", help="in each round")
    choice = asked.parse_args()
    image = choice.image or image_of_project(choice.dir)
    durable, at_once = names = [f"{choice.prefix}-{name}" for name in ("durable", "at-once")]
    each: dict[str, list[float]] = {name: [] for name in names}
    with removed(*names):
        started(durable, image)
        # An empty file there: the linker says that it ignores it
        started(at_once, image, "--volume", f"/dev/null:{PRELOADED}:ro")
        for name, wanted in ((durable, True), (at_once, False)):
            if preloaded(name) is not wanted:
                raise SystemExit(f"{name}: {PRELOADED} is{' not' if wanted else ''} in slurmctld")
        for _ in range(choice.rounds):
            for name in names:
                took = int(docker("exec", name, "sh", "-c", LOOP, "sh", str(choice.jobs)))
                each[name].append(took / 1e9 / choice.jobs)
    safe, unsafe = median(each[durable]), median(each[at_once])
    print(
        f"sbatch, {choice.jobs} in a row: {safe * 1000:.1f} ms each, {unsafe * 1000:.1f} ms where the "
        f"answer does not wait for the disk; median of {choice.rounds} rounds in turns"
    )
    return int(limited("sbatch, longer for the disk", (safe - unsafe) * 1000, "ms",
                       most=MOST_MORE_S * 1000))  # fmt: skip


def preloaded(name: str) -> bool:
    pid = docker("exec", name, "s6-svstat", "-o", "pid", "/run/dshpc/services/slurmctld").strip()
    return PRELOADED in docker("exec", "--user", "slurm", name, "cat", f"/proc/{pid}/maps")


if __name__ == "__main__":
    sys.exit(main())
