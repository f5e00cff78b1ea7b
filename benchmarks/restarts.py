#!/usr/bin/env python3
"""Starts of one cluster on ever other made-up machines, against the least possible; and killed daemons.

Each round has another machine: 0 to 16 GPUs of random kinds, MIG instances among them, limits of
memory and CPUs. Ours is made anew over the volumes of the round before, as if the container had been
moved. The yardstick is the minimal start script of benchmarks/start.py on the same machine, with new
volumes and the finished configuration. Both are measured in turns from `docker run` to the first job.

    python benchmarks/restarts.py [--dir PROJECT | --image TAG] [--rounds N] [--kills N] [--seed N]

Then slurmctld and slurmd are killed in turns, and the time is taken until each is back: another
process, the controller answers, and the node is idle.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from image_size import image_of_project
from side_by_side import limited, parser
from start import MINIMAL, docker, remove, removed, seconds_to

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.integration.soak.hardware import Hardware, random_hardware

LIMIT_RATIO = 2.0
LIMIT_BACK_S = 5.0
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")

# The yardstick's job asks for a GPU where there is one.
_LEAST = MINIMAL.replace("--gres=gpu:1", "$DSHPC_BENCH_GRES").replace(
    "head -c 1024 /dev/urandom > /etc/slurm/slurm.key",
    "rm -f /etc/slurm/slurm.key; head -c 1024 /dev/urandom > /etc/slurm/slurm.key",
)


def options(name: str, hardware: Hardware) -> list[str]:
    """What `docker run` is given for both."""
    return [
        "--name", name, "--hostname", "bench",
        "--cap-drop", "ALL", *(f"--cap-add={each}" for each in CAPABILITIES),
        "--security-opt", "no-new-privileges",
        "--volume", f"{name}-state:/var/lib/dshpc/state",
        "--volume", f"{name}-key:/var/lib/dshpc/key",
        "--env", "DSHPC_PREFIX=bench", *hardware.options(),
    ]  # fmt: skip


def ours(name: str, image: str, hardware: Hardware) -> float:
    return seconds_to("Ready after", [*options(name, hardware), image])


def least(name: str, image: str, hardware: Hardware, folder: Path) -> float:
    """With the configuration that ours, which still runs, has found."""
    configured = folder / "slurm"
    subprocess.run(["rm", "-rf", str(configured)], check=True)
    docker("cp", "--follow-link", f"{name.removesuffix('-least')}:/etc/slurm", str(configured))
    (configured / "slurm.key").unlink(missing_ok=True)
    (folder / "start.sh").write_text(_LEAST)
    gres = "--gres=gpu:1" if hardware.gres else "--mem=16"
    minimal = ["--entrypoint", "sh", "--init", "--volume", f"{folder}:/bench:ro"]
    minimal += ["--env", f"DSHPC_BENCH_GRES={gres}"]
    argv = [*options(name, hardware), *minimal, image, "/bench/start.sh", "bench"]
    return seconds_to("FIRST JOB PASSED", argv)


def take_down(name: str) -> None:
    """As `docker compose down` does: the queue is saved, and the volumes stay."""
    docker("stop", "--time", "15", name)
    docker("rm", "--force", name)


def back_after_kills(name: str, kills: int) -> dict[str, list[float]]:
    """Seconds until a killed daemon answers again and the node takes jobs, for each kill."""
    took: dict[str, list[float]] = {"slurmctld": [], "slurmd": []}
    time.sleep(6)  # until slurmctld has written down that the first job has ended
    for number in range(2 * kills):
        service = tuple(took)[number % 2]
        # one process does it all: each call of docker costs a tenth of a second
        script = """
            pid=$(s6-svstat -o pid "/run/dshpc/services/$1")
            kill -9 "$pid"
            until now=$(s6-svstat -o pid "/run/dshpc/services/$1") && [ "$now" -gt 0 ] &&
                [ "$now" != "$pid" ] && scontrol ping >/dev/null 2>&1 &&
                [ "$(sinfo -h -N -o %T)" = idle ]; do sleep 0.02; done
        """
        began = time.monotonic()
        docker("exec", name, "sh", "-c", script, "sh", service)
        took[service].append(time.monotonic() - began)
        time.sleep(1.5)  # one that ends within a second of its start is not started again at once
    return took


def main() -> int:
    asked = parser(__doc__, 20, project=True)
    asked.add_argument("--image", help="tag or id of the dsHPC image")
    asked.add_argument("--prefix", default="dshpc-bench", help="names of the containers")
    asked.add_argument("--kills", type=int, default=5, metavar="N", help="of each daemon")
    asked.add_argument("--seed", type=int, default=1)
    choice = asked.parse_args()
    image = choice.image or image_of_project(choice.dir)
    choose = random.Random(choice.seed)
    name = f"{choice.prefix}-restarts"
    other = f"{name}-least"
    times: tuple[list[float], list[float]] = ([], [])
    with removed(name, other), tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        folder.chmod(0o755)
        ours(name, image, Hardware("h100:2"))  # not counted: the first one has no state
        for _ in range(choice.rounds):
            hardware = random_hardware(choose)
            take_down(name)
            times[0].append(ours(name, image, hardware))
            times[1].append(least(other, image, hardware, folder))
            remove(other)
        returned = back_after_kills(name, choice.kills)
    ratio = median(times[0]) / median(times[1])
    print(f"minimal start script: median {median(times[1]):.3f} s")
    print(
        f"dsHPC: median {median(times[0]):.3f} s, slowest {max(times[0]):.3f} s, "
        f"{len(times[0])} starts"
    )
    beyond = [limited("restart, ratio", ratio, most=LIMIT_RATIO)]
    for service, times_back in returned.items():
        print(f"{service}, killed, is back after {median(times_back):.2f} s")
        slowest = max(times_back)
        beyond.append(limited(f"{service} back, slowest", slowest, "s", most=LIMIT_BACK_S))
    return int(any(beyond))


if __name__ == "__main__":
    sys.exit(main())
