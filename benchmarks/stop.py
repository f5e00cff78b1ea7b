"""How long `docker stop` takes, by what runs: jobs are told, and have some seconds to save their work.

    python benchmarks/stop.py [--dir PROJECT | --image TAG]

Each is a container of its own of the project's image. See docs/decisions/0022-stopping.md: the engine
kills what has not ended after 10 s, and then jobs are lost.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median

from changed import started
from image_size import image_of_project
from side_by_side import limited, parser
from start import docker, remove, removed

MOST_S = 2.0
MOST_STUBBORN_S = 10.0
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
# Submits $1, if it is anything, and waits until it runs
SUBMIT = """
[ -n "$1" ] || exit 0
job=$(sbatch --parsable -o /dev/null --wrap "$1") || exit 1
until [ "$(squeue -h -j "$job" -o %T)" = RUNNING ]; do sleep 0.1; done
sleep 1 # until the script has set its trap
[ -z "$2" ] || scancel "$job"
"""
CASES = (
    ("without a job", "", "", MOST_S),
    ("with a job that ends at once", "sleep 600", "", MOST_S),
    ("with a job that ignores SIGTERM", STUBBORN, "", MOST_STUBBORN_S),
    ("with such a job that is being cancelled", STUBBORN, "cancel", MOST_STUBBORN_S),
)


def main() -> int:
    asked = parser(__doc__, 3, project=True)
    asked.add_argument("--image", help="tag or id of the dsHPC image")
    asked.add_argument("--prefix", default="dshpc-bench", help="name of the container")
    choice = asked.parse_args()
    image = choice.image or image_of_project(choice.dir)
    name = f"{choice.prefix}-stop"
    beyond = []
    with removed(name):
        for title, script, cancel, most_s in CASES:
            took = []
            for _ in range(choice.rounds):
                started(name, image)
                docker("exec", name, "sh", "-c", SUBMIT, "sh", script, cancel)
                took.append(stop_s(name))
                remove(name)
            beyond.append(limited(f"stop {title}", median(took), "s", most=most_s))
    return int(any(beyond))


def stop_s(name: str) -> float:
    began = time.monotonic()
    docker("stop", name)
    took = time.monotonic() - began
    code = json.loads(docker("container", "inspect", name))[0]["State"]["ExitCode"]
    if code != 0:
        print(f"it was killed after {took:.1f} s: exit code {code}")
    return took


if __name__ == "__main__":
    sys.exit(main())
