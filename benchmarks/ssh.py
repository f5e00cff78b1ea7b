"""ssh into a job that runs: how long a connection takes, and how fast files pass.

    python benchmarks/ssh.py [--dir PROJECT]

The project is the folder where configure-environment ran, or one below it, with its cluster running. A job
of `ssh cpu` is submitted, and cancelled at the end. A copy's time is less what a connection takes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from side_by_side import arguments, compare, limited, program, project_at, said, timed

MOST = 3.0  # times docker exec srun --overlap true
LEAST_BY_SRUN = 0.7  # of the rate of srun -u
LEAST = 0.5  # of the rate of docker exec
MIB = 48
_OF_ROOT = "/var/lib/docker/volumes/{}-home/_data/root/.local/state/dshpc-ssh"


def main() -> int:
    options = arguments(__doc__, 10, project=True)
    project = project_at(options.dir)
    container, prefix = (str(project.runtime()[name]) for name in ("container", "prefix"))
    with tempfile.TemporaryDirectory() as text:
        # Nobody's ~/.ssh gets a key of it
        print_it = [program(), "ssh-config", "--print", "--dir", str(project.folder)]
        config = said(print_it, env={**os.environ, "HOME": text})
        direct, by_srun = Path(text) / "direct", Path(text) / "by-srun"
        direct.write_text(config)
        by_srun.write_text(config.replace("ssh-proxy", "ssh-proxy --srun"))
        ssh = ["ssh", "-F", str(direct), "-o", "BatchMode=yes", "cpu"]
        job = said([*ssh, "echo $SLURM_JOB_ID"]).strip()
        inside = ["docker", "exec", "--user", f"{os.getuid()}:{os.getgid()}", container]
        step = [*inside, "srun", "-u", f"--jobid={job}", "--overlap"]
        try:
            beyond = compare(
                "ssh into a job that runs, against docker exec srun --overlap true",
                [*ssh, "true"],
                [*inside, "srun", f"--jobid={job}", "--overlap", "true"],
                most=MOST,
                rounds=options.rounds,
            )
            ssh_by_srun = ["ssh", "-F", str(by_srun), "-o", "BatchMode=yes", "cpu"]
            beyond |= rates(
                "by srun's stream", ssh_by_srun, "srun -u", step, LEAST_BY_SRUN, options.rounds
            )
            homes = (Path.home() / f".local/state/dshpc-ssh-{prefix}", _OF_ROOT.format(prefix))
            way = (
                "the socket in the home"
                if any(os.path.exists(home) for home in homes)
                else "the engine's exec"
            )
            beyond |= rates(f"by {way}", ssh, "docker exec", inside, LEAST, options.rounds)
        finally:
            said([*inside, "scancel", job])
    return int(beyond)


def rates(
    what: str, measured: list[str], against: str, other: list[str], least: float, rounds: int
) -> bool:
    """Whether files pass by ssh at less than `least` of the rate at which they pass without."""
    pairs = [(rate(measured), rate(other)) for _ in range(max(1, rounds // 3))]
    ours, theirs = (median(side) for side in zip(*pairs, strict=True))
    print(
        f"{MIB} MiB {what}: {ours:.1f} MiB/s, {against}: {theirs:.1f} MiB/s, median of {len(pairs)}"
    )
    return limited(f"files {what} against {against}, ratio of rates", ours / theirs, least=least)


def rate(begin: list[str]) -> float:
    """MiB a second."""
    nothing = ["sh", "-c", '"$@" >/dev/null', "sh", *begin]
    once = timed([*nothing, "true"])
    whole = timed([*nothing, "head", "-c", f"{MIB}M", "/dev/zero"])
    return MIB / max(0.001, whole - once)


if __name__ == "__main__":
    sys.exit(main())
