"""What is known of a plain srun or sbatch job that has ended, and what is said of one that would hang."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, as_user, run
from tests.integration.test_cluster_commands import wait_for

pytestmark = pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")

UID = 4321
ENDED = f"/var/lib/dshpc/state/ended/{UID}"


@pytest.fixture
def own(standard: Cluster) -> Path:
    folder = standard.work / "ends"
    folder.mkdir(exist_ok=True)
    os.chown(folder, UID, UID)
    return folder


def shown(own: Path, job: str) -> dict[str, Any]:
    said = as_user(UID, "dshpc", "job", "show", job, "--json", cwd=own).good()
    (found,) = json.loads(said.stdout)["jobs"]
    return dict(found)


def ended(own: Path, job: str) -> dict[str, Any]:
    over = ("COMPLETED", "FAILED", "CANCELLED")
    wait_for(lambda: shown(own, job)["state"] in over)
    return shown(own, job)


def test_the_gpus_of_a_job_that_has_ended(standard: Cluster, own: Path) -> None:
    """As they were told while it ran: of batch jobs, of srun's, of tasks of arrays, of cancelled ones."""
    script = "until [ -e go ]; do sleep 0.1; done; srun --gres=gpu:1 true"
    job = as_user(
        UID, "dshpc", "sbatch", "--parsable", "--gres=gpu:2", f"--wrap={script}", cwd=own
    ).good().stdout.strip()  # fmt: skip
    wait_for(lambda: shown(own, job)["state"] == "RUNNING")
    runs = [(gpu["index"], gpu["uuid"]) for gpu in shown(own, job)["gpus"]]
    assert [index for index, _ in runs] == [0, 1]
    (own / "go").touch()
    assert [(gpu["index"], gpu["uuid"]) for gpu in ended(own, job)["gpus"]] == runs
    asked = ("dshpc", "srun", "--gres=gpu:1", "printenv", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES")
    said = as_user(UID, *asked, cwd=own).good().stdout.split()
    assert [str(gpu["index"]) for gpu in ended(own, said[0])["gpus"]] == said[1:]
    array = as_user(
        UID, "dshpc", "sbatch", "--parsable", "--array=3", "--gres=gpu:1", "--wrap=true", cwd=own
    ).good().stdout.strip()  # fmt: skip
    assert len(ended(own, f"{array}_3")["gpus"]) == 1
    cancelled = as_user(
        UID, "dshpc", "sbatch", "--parsable", "--gres=gpu:1", "--wrap=exec sleep 600", cwd=own
    ).good().stdout.strip()  # fmt: skip
    wait_for(lambda: shown(own, cancelled)["state"] == "RUNNING")
    standard.said("scancel", cancelled)
    assert len(ended(own, cancelled)["gpus"]) == 1
    none = as_user(UID, "dshpc", "srun", "printenv", "SLURM_JOB_ID", cwd=own).good().stdout
    assert ended(own, none.strip())["gpus"] == []
    table = as_user(UID, "dshpc", "job", "list", cwd=own).good().stdout
    # Of other users' jobs it is not known which GPUs they had, only what they asked for
    assert not any("gpu:" in line for line in table.splitlines() if f"user{UID}" in line)
    # Slurm's own tools show what they always did
    assert standard.dshpc("status").good().stdout.count("0 of 2 in use") == 1


def test_a_job_whose_launch_failed_is_queued_again_and_not_held(
    standard: Cluster, own: Path
) -> None:
    """As where slurmd is killed in that moment: nobody had to release it, nor knew."""
    there = "/usr/sbin/slurmstepd"
    standard.said("mv", there, f"{there}.away")
    try:
        said = as_user(UID, "dshpc", "sbatch", "--parsable", "--wrap=echo did run", cwd=own)
        job = said.good().stdout.strip()
        wait_for(lambda: "queued again" in (shown(own, job)["reason"] or ""))
    finally:
        standard.said("mv", f"{there}.away", there)
    standard.said("scontrol", "update", f"JobId={job}", "StartTime=now")
    assert ended(own, job)["state"] == "COMPLETED"
    assert (own / f"slurm-{job}.out").read_text() == "did run\n"


def test_what_is_written_of_an_end_is_written_as_the_user(standard: Cluster, own: Path) -> None:
    """A link or a pipe that the user has put there leads to no file of another's, and holds up no job."""
    asked = ("dshpc", "sbatch", "--parsable", "--wait", "-o", "/dev/null", "--gres=gpu:1")
    first = int(as_user(UID, *asked, "--wrap=true", cwd=own).good().stdout)
    private = "/var/lib/dshpc/state/private"
    standard.said("sh", "-c", f"echo mine >{private}; chmod 600 {private}")
    traps = f"""
        cd {ENDED}
        for n in 1 2 3 4 5; do
            name=$((({first} + 1 + n) % 1000))
            rm -f $name $name.job; ln -s {private} $name.job
            [ $n = 1 ] && mkfifo $name || ln -s {private} $name
        done
    """
    as_user(UID, "dshpc", "srun", "sh", "-c", traps, cwd=own).good()
    for _ in range(3):
        as_user(UID, *asked, "--wrap=true", cwd=own).good()
    assert standard.said("cat", private) == "mine"
    standard.said("sh", "-c", f"rm -r {private} {ENDED}/*")


def test_an_srun_inside_a_step_says_that_it_waits(standard: Cluster, own: Path) -> None:
    """Slurm itself says so after two minutes at the earliest."""
    inner = "timeout 3 srun true; srun --overlap echo beside; SLURM_OVERLAP=1 srun echo too"
    said = as_user(UID, "dshpc", "srun", "sh", "-c", inner, cwd=own)
    assert said.stdout.splitlines() == ["beside", "too"], said.stderr
    assert said.stderr.count("this srun runs in a step of srun") == 1
    assert "srun --overlap" in said.stderr
    # Steps of a batch job, and of a shell of salloc, are in no step
    batch = as_user(
        UID, "dshpc", "sbatch", "--wait", "-o", "batch.out", "--wrap=srun echo step", cwd=own
    ).good()  # fmt: skip
    assert "in a step" not in batch.stderr + (own / "batch.out").read_text()
    assert "step" in (own / "batch.out").read_text()
    alloc = as_user(UID, "dshpc", "salloc", "srun", "echo", "step", cwd=own).good()
    assert (alloc.stdout, "in a step of srun" in alloc.stderr) == ("step\n", False)


def test_a_container_that_a_script_asks_for_is_refused(standard: Cluster, own: Path) -> None:
    """Its container has not the rights for it: the setting containers is off."""
    script = "#!/bin/sh\n#SBATCH --container=/x\ntrue\n"
    (own / "job.sh").write_text(script)
    said = as_user(UID, "dshpc", "sbatch", "job.sh", cwd=own)
    assert (said.code, said.stdout) == (1, "")
    assert "dshpc config set containers on" in said.stderr
    typed = ["sh", "-c", f"cd / && printf '%s' '{script}' | sbatch"]
    told = run(["docker", "exec", standard.container, *typed])
    assert (told.code != 0, told.stdout) == (True, ""), told
    assert "dshpc config set containers on" in told.stderr
    image = as_user(UID, "dshpc", "run", "--image", "job.sh", "--", "true", cwd=own)
    assert (image.code, image.stdout) == (2, "")
    assert "dshpc config set containers on" in image.stderr
