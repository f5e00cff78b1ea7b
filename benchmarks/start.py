#!/usr/bin/env python3
"""How long a container takes from its creation to the first GPU job, against the least possible.

The yardstick is a container of the same image, created the same way with the same daemons and the
finished configuration, but with a minimal start script written by hand. Both are measured in turns
from `docker run` to the line that says that `srun --gres=gpu:1 true` has passed. Each has new, empty
volumes. The GPUs are made up: names of /dev/null.

    python benchmarks/start.py [--dir PROJECT | --image TAG]

The project is the folder where configure-environment ran, or one below it: its image is measured. With one,
`dshpc up` after `dshpc down` is timed, too, on the built-in engine against the same with Docker, in turns:
clusters that are made for it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from beside import cluster
from image_size import image_of_project
from side_by_side import limited, parser, project_at

LIMIT_RATIO = 2.0
LIMIT_SLOWEST_S = 2.5
LIMIT_BUILTIN = 1.3  # of the time with Docker
DEADLINE_S = 60

MINIMAL = """
state=/var/lib/dshpc/state
mkdir -p /run/slurm /run/slurmctld /var/spool/slurmd $state/slurmctld $state/jobcomp
chown slurm /run/slurmctld $state/slurmctld $state/jobcomp
cp -r /bench/slurm /etc/slurm
head -c 1024 /dev/urandom > /etc/slurm/slurm.key
chown slurm /etc/slurm/slurm.key
chmod 600 /etc/slurm/slurm.key
slurmctld -D 2>/dev/null &
while ! grep -q ':1AA1 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.002; done
slurmd -D -N "$1" 2>/dev/null &
while ! grep -q ':1AA2 .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.002; done
until srun --quiet --gres=gpu:1 true; do sleep 0.01; done
echo 'FIRST JOB PASSED'
exec sleep infinity
"""


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"docker {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def options(name: str) -> list[str]:
    """What `docker run` is given for both."""
    capabilities = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
    return [
        "--name", name, "--hostname", "bench",
        "--cap-drop", "ALL", *(f"--cap-add={each}" for each in capabilities),
        "--security-opt", "no-new-privileges",
        "--device", "/dev/null:/dev/nvidia0", "--device", "/dev/null:/dev/nvidia1",
        "--volume", f"{name}-state:/var/lib/dshpc/state",
        "--volume", f"{name}-key:/var/lib/dshpc/key",
        "--env", "DSHPC_PREFIX=bench", "--env", "DSHPC_SIMULATE=h100:2",
    ]  # fmt: skip


def seconds_to(marker: str, arguments: list[str]) -> float:
    """From the call of docker to the line with the marker."""
    began = time.monotonic()
    said = []
    with subprocess.Popen(
        ["docker", "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as client:
        assert client.stdout is not None
        watchdog = threading.Timer(DEADLINE_S, client.kill)
        watchdog.daemon = True
        watchdog.start()
        for line in client.stdout:
            said.append(line)
            if marker in line:
                took = time.monotonic() - began
                watchdog.cancel()
                client.kill()
                return took
            if "FAILED" in line:
                client.kill()
                break
    raise SystemExit("The first job did not pass:\n" + "".join(said))


def remove(*names: str) -> None:
    """What is there of them; also of a run before this one that was killed."""
    volumes = [f"{name}-{volume}" for name in names for volume in ("state", "key")]
    for what in (["rm", "--force", "--volumes", *names], ["volume", "rm", "--force", *volumes]):
        subprocess.run(["docker", *what], capture_output=True, timeout=120, check=False)


@contextlib.contextmanager
def removed(*names: str) -> Iterator[None]:
    """Containers of these names are gone before, and behind it however it ends."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    remove(*names)
    try:
        yield
    finally:
        remove(*names)


def beside_docker(folder: Path, prefix: str, rounds: int) -> bool:
    """Whether a start on the built-in engine takes longer than it may."""
    with cluster(folder, "builtin", prefix) as own, cluster(folder, "docker", prefix) as docker_s:
        times: dict[str, list[float]] = {"builtin": [], "docker": []}
        for _ in range(rounds + 1):
            for name, each in (("builtin", own), ("docker", docker_s)):
                each.time("down")
                times[name].append(each.time("up"))
    ours, theirs = (median(times[name][1:]) for name in ("builtin", "docker"))
    print(f"dshpc up: built-in engine {ours:.3f} s, Docker {theirs:.3f} s, median of {rounds}")
    return limited(
        "start, built-in engine against Docker, ratio", ours / theirs, most=LIMIT_BUILTIN
    )


def main() -> int:
    asked = parser(__doc__, 10, project=True)
    asked.add_argument("--image", help="tag or id of the dsHPC image")
    asked.add_argument("--prefix", default="dshpc-bench", help="names of the containers")
    choice = asked.parse_args()
    image = choice.image or image_of_project(choice.dir)
    ours, least = f"{choice.prefix}-start", f"{choice.prefix}-least"
    with removed(ours, least), tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        folder.chmod(0o755)
        # The first start, not counted: the engine warms up, and gives the finished configuration.
        seconds_to("Ready after", [*options(ours), image])
        docker("cp", "--follow-link", f"{ours}:/etc/slurm", str(folder / "slurm"))
        remove(ours)
        for name in ("slurm.key", "slurm.jwks", "ask.conf"):
            (folder / "slurm" / name).unlink(missing_ok=True)
        (folder / "start.sh").write_text(MINIMAL)
        minimal = ["--entrypoint", "sh", "--init", "--volume", f"{folder}:/bench:ro"]
        times: dict[str, list[float]] = {ours: [], least: []}
        for _ in range(choice.rounds):
            times[least].append(
                seconds_to(
                    "FIRST JOB PASSED",
                    [*options(least), *minimal, image, "/bench/start.sh", "bench"],
                )
            )
            remove(least)
            times[ours].append(seconds_to("Ready after", [*options(ours), image]))
            remove(ours)
    ratio = median(times[ours]) / median(times[least])
    slowest = max(times[ours])
    print(f"minimal start script: median {median(times[least]):.3f} s")
    print(f"dsHPC:                median {median(times[ours]):.3f} s, slowest {slowest:.3f} s")
    beyond = limited("start, ratio", ratio, most=LIMIT_RATIO)
    beyond |= limited("start, slowest", slowest, "s", most=LIMIT_SLOWEST_S)
    if choice.image is None:
        folder = project_at(choice.dir).folder
        beyond |= beside_docker(folder, choice.prefix, choice.rounds)
    return int(beyond)


if __name__ == "__main__":
    sys.exit(main())
