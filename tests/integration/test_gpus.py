"""`dshpc gpus` on a running cluster of made-up GPUs, and NVML's measurements by a real library."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import pytest

from dshpc_setup.probes import readings
from dshpc_setup.vendors.nvidia import readings as nvidia
from tests.integration.cluster import Cluster, command, environment, wait_until
from tests.integration.test_nvml_standin import Describe, describe, library

pytestmark = pytest.mark.engines("builtin", "docker")

__all__ = ["describe", "library"]

WAITS = "echo $SLURM_JOB_GPUS; while [ ! -e {work}/go ]; do sleep 0.1; done"


def gpus(cluster: Cluster) -> list[dict[str, Any]]:
    found = cluster.dshpc("gpus", "--json").good().report["gpus"]
    assert isinstance(found, list)
    return found


def held(cluster: Cluster) -> list[list[str]]:
    """Job ids for each card, and for each MIG instance of a card that is cut."""
    return [
        [job["job_id"] for job in item["jobs"]]
        for gpu in gpus(cluster)
        for item in gpu["mig"] or [gpu]
    ]


def start(cluster: Cluster, gres: str, *more: str) -> tuple[str, list[int]]:
    """A job that holds these GPUs until the file `go` is there: its id, and what it was given."""
    job = cluster.submit(f"--gres={gres}", *more, script=WAITS.format(work=cluster.work))
    wait_until(lambda: cluster.output(job).endswith("\n"), f"job {job} says its GPUs")
    return job, [int(number) for number in cluster.output(job).split(",")]


def end(cluster: Cluster, *jobs: str) -> None:
    (cluster.work / "go").touch()
    for job in jobs:
        cluster.completed(job)
    (cluster.work / "go").unlink()


def test_which_job_holds_which_gpu(fresh: Cluster) -> None:
    fresh.configure("--simulate", "mixed").good()
    report = fresh.dshpc("gpus", "--json").good().report
    assert (report["schema"], report["simulated"], report["exit_code"]) == ("dshpc.gpus/1", True, 0)
    assert report["cluster"] == {"container": fresh.container, "state": "ready", "detail": None}
    assert [gpu["slurm_type"] for gpu in report["gpus"]] == ["h100", "h100", "t4"]
    assert [gpu["jobs"] for gpu in report["gpus"]] == [[], [], []]
    assert {gpu["utilization_percent"] for gpu in report["gpus"]} == {None}

    name = "my job, UserId=x(0) GRES=gpu:8(IDX:0-7)"
    mixed, given = start(fresh, "gpu:t4:1,gpu:h100:1", "-J", name)
    alone, rest = start(fresh, "gpu:h100:1")
    assert sorted(given + rest) == [0, 1, 2]
    assert held(fresh) == [[mixed] if place in given else [alone] for place in range(3)]
    (job,) = gpus(fresh)[2]["jobs"]
    assert job == {"job_id": mixed, "user": "root", "name": name, "gpus_of_job": 2}
    end(fresh, mixed, alone)
    assert held(fresh) == [[], [], []]

    array = fresh.submit("--gres=gpu:t4:1", "--array=3", script="sleep 600")
    wait_until(lambda: held(fresh)[2] == [f"{array}_3"], "the task of the array holds the T4")
    table = fresh.dshpc("gpus").good().stdout.splitlines()
    assert "SIMULATED" in table[0]
    assert [line.split()[-1] for line in table[2:4]] == ["free", "free"]
    assert f"{array}_3 root wrap" in table[4]
    fresh.said("scancel", array)

    fresh.dshpc("down").good()
    report = fresh.dshpc("gpus", "--json").good().report
    assert report["cluster"]["state"] == "missing"
    assert [gpu["jobs"] for gpu in report["gpus"]] == [None] * 3


def test_who_waits_for_a_gpu_keeps_nobody_from_another(fresh: Cluster) -> None:
    """Nor does the time limit of the job that has it, by which Slurm plans (decision 0024)."""
    fresh.configure("--simulate", "mixed").good()
    holder = fresh.submit("--gres=gpu:t4:1", "-t", "10", script="sleep 600")
    wait_until(lambda: fresh.job_state(holder)[0] == "RUNNING", "a job holds the T4")
    waiting = fresh.submit("--gres=gpu:t4:1", script="sleep 600")
    wait_until(lambda: fresh.job_state(waiting)[0] == "PENDING", "the second job waits")
    free, _ = start(fresh, "gpu:h100:1", "-t", "10")
    assert fresh.job_state(waiting)[0] == "PENDING"
    # ... unless root gives one the right of way, and Slurm knows when it could begin
    wide = fresh.submit("--gres=gpu:h100:2", script="true")
    fresh.said("scontrol", "update", f"JobId={wide}", "Priority=1000000")
    behind = fresh.submit("--gres=gpu:h100:1", script="true")
    time.sleep(3)
    assert fresh.job_state(behind)[0] == "PENDING"
    end(fresh, free, wide, behind)
    fresh.said("scancel", holder, waiting)


def test_which_job_holds_which_instance(fresh: Cluster) -> None:
    fresh.configure("--simulate", "mig").good()
    parts, given = start(fresh, "gpu:1g.10gb:2")
    whole, rest = start(fresh, "gpu:h100:1")
    assert rest == [5], "one 3g.40gb and four 1g.10gb come before the whole card"
    here = {**dict.fromkeys(given, parts), **dict.fromkeys(rest, whole)}
    assert held(fresh) == [[here[place]] if place in here else [] for place in range(6)]
    cut, _ = gpus(fresh)
    assert [part["slurm_type"] for part in cut["mig"]] == ["3g.40gb", *["1g.10gb"] * 4]
    assert [job["job_id"] for job in cut["jobs"]] == [parts]
    end(fresh, parts, whole)


def test_types_that_gres_conf_mixes(fresh: Cluster) -> None:
    """slurmd has the GPUs of one type together, whatever the order of the lines is."""
    fresh.configure("--simulate", "mixed").good()
    lines = [f"Name=gpu Type={kind} File=/dev/nvidia{number} Flags=nvidia_gpu_env"
             for number, kind in enumerate(("h100", "t4", "h100"))]  # fmt: skip
    own = ["# USER_CUSTOMIZED=true", "AutoDetect=off", *lines]
    (fresh.folder / "config/gres.conf").write_text("\n".join(own) + "\n")
    fresh.dshpc("restart").good()
    job, _ = start(fresh, "gpu:t4:1")
    assert held(fresh) == [[], [job], []]
    assert [gpu["slurm_type"] for gpu in gpus(fresh)] == ["h100", "t4", "h100"]
    end(fresh, job)


def test_watching_ends_with_ctrl_c(standard: Cluster) -> None:
    child = subprocess.Popen(
        command("dshpc", "gpus", "--watch", "--interval", "0.2"),
        cwd=standard.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    empty = 0
    for line in iter(child.stdout.readline, ""):
        empty += line == "\n"
        if empty == 2:
            break
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (130, "")


MEASURED = """\
gpu minor=0 bus=00000000:1a:00 memory=81559 used=12 temperature=40 power=80000 power_limit=700000 \
mig=1 uuid=GPU-0a name=NVIDIA H100
instance gi=1 ci=0 memory=40448 used=900 slices=3/3 uuid=MIG-01 profile=3g.40gb
gpu minor=1 bus=00000000:1b:00 memory=15360 used=512 utilization=97 temperature=65 power=69500 \
power_limit=70000 uuid=GPU-0b name=Tesla T4
"""


def test_what_nvml_measures(describe: Describe) -> None:
    reply = describe(MEASURED).nvml_readings(60)
    assert (reply.state, reply.detail) == ("present", None)
    cut, whole = (nvidia.parse(item) for item in reply.value["devices"])
    assert (cut.memory_used_mib, cut.utilization_percent, cut.power_w) == (12, None, 80.0)
    assert [(part.uuid, part.memory_used_mib) for part in cut.mig] == [("MIG-01", 900)]
    assert whole == readings.Reading(512, 15360, 97, 65, 69.5, 70.0)


@pytest.mark.parametrize("function", ["nvmlDeviceGetTemperature", "nvmlDeviceGetCount_v2"])
def test_an_nvml_that_hangs(describe: Describe, function: str) -> None:
    machine = describe(f"hang {function}\n{MEASURED}")
    began = time.monotonic()
    reply = machine.nvml_readings(0.5)
    assert reply.state == "timeout"
    assert time.monotonic() - began < 30
