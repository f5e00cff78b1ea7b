"""`gres_type: index` and `--target` on a real cluster: particular GPUs, and all names as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Outcome, made, wait_until
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("targets", engine=engine) as one:
        one.configure("--simulate", "h100:2", "--gres-type", "index").good()
        yield one


@pytest.fixture(autouse=True)
def _nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.empty_queue()


def uuids(cluster: Cluster) -> list[str]:
    return [line.split()[4] for line in cluster.said("cat", "/run/dshpc/gpu-places").splitlines()
            if line.startswith("gpu ")]  # fmt: skip


def run(cluster: Cluster, *words: str, script: str = 'echo "$CUDA_VISIBLE_DEVICES"') -> Outcome:
    """`dshpc run --target NODE...`, with the node before what begins with ::."""
    arguments = [f"{cluster.prefix}{word}" if word.startswith("::") else word for word in words]
    return cluster.dshpc("run", *arguments, "--", "sh", "-c", script)


def held(cluster: Cluster, word: str) -> dict[str, Any]:
    """A job that has the GPUs until it is cancelled."""
    one = run(cluster, "--json", "--target", word, script="sleep 600").good().report
    wait_until(lambda: cluster.job_state(one["job_id"])[0] == "RUNNING", "it runs")
    return one


def test_the_node_has_a_type_for_each_and_all_else_as_before(cluster: Cluster) -> None:
    wait_until(lambda: cluster.node()[1] == "idle", "the first job has ended")
    assert cluster.node()[0] == "gpu:gpu0:1,gpu:gpu1:1"
    assert cluster.said("sinfo", "-h", "-o", "%f") == "nvidia,h100,gpumem80g,cc9.0"
    shown = cluster.dshpc("gpus").good().stdout
    assert "gpu0" in shown
    assert "gpu1" in shown


@pytest.mark.parametrize(("word", "numbers"), [("::1", [1]), ("::1,0", [0, 1])])
def test_a_target_is_what_the_job_gets(cluster: Cluster, word: str, numbers: list[int]) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES"'
    done = run(cluster, "--wait", "--target", word, script=script).good()
    known = uuids(cluster)
    seen, ids = done.stdout.split()
    assert seen.split(",") == [str(number) for number in numbers]
    assert ids.split(",") == [known[number] for number in numbers]
    names = ",".join(f"gpu:gpu{number}:1" for number in reversed(numbers))
    called = run(cluster, "--dry-run", "--target", word).good().stdout.split()
    assert f"--gres={names}" in called


def test_by_a_uuid_and_its_beginning(cluster: Cluster) -> None:
    whole = uuids(cluster)[1]
    short = next(
        whole[:size] for size in range(5, 40) if not uuids(cluster)[0].startswith(whole[:size])
    )
    for word in (whole, short):
        assert "gpu:gpu1:1" in run(cluster, "--dry-run", "--target", f"::{word}").good().stdout


def test_a_method_has_a_job_for_each_target(cluster: Cluster) -> None:
    node = cluster.prefix
    words = ("--target", f"{node}::1", "--target", f"{node}::0", "--json")
    jobs = cluster.dshpc("method", "run", "gpu-report", *words).good().report["jobs"]
    wait_until(lambda: not cluster.said("squeue", "-h", "-a"), "both have ended")
    known = uuids(cluster)
    assert [job["gpus"]["which"] for job in jobs] == [["1"], ["0"]]
    for job, uuid in zip(jobs, (known[1], known[0]), strict=True):
        assert uuid in Path(job["workspace"], "output.log").read_text()


def test_who_has_a_taken_gpu_is_said_and_the_job_waits(cluster: Cluster) -> None:
    first = held(cluster, "::0")
    told = run(cluster, "--json", "--target", "::0").good().report
    assert told["notes"][0] == (
        f"It waits for its GPU: GPU 0 is taken by job {first['job_id']} of root."
    )
    assert cluster.job_state(told["job_id"])[0] == "PENDING"
    cluster.said("scancel", first["job_id"])
    cluster.completed(told["job_id"])


def test_without_waiting_nothing_stays_queued(cluster: Cluster) -> None:
    first = held(cluster, "::0")
    before = sorted(path.name for path in (cluster.work / "jobs/0").iterdir())
    refused = run(cluster, "--no-wait", "--target", "::0")
    assert refused.code == 2
    assert f"GPU 0 is taken by job {first['job_id']} of root" in refused.stderr
    # What only Slurm can tell: no CPU is left
    full = run(cluster, "--no-wait", "--target", "::1", "--cpus", "0")
    assert full.code == 2
    assert "was taken back" in full.stderr
    assert cluster.said("squeue", "-h", "-a", "-o", "%i") == first["job_id"]
    assert sorted(path.name for path in (cluster.work / "jobs/0").iterdir()) == before
    cluster.said("scancel", first["job_id"])
    wait_until(lambda: not cluster.said("squeue", "-h", "-a"), "it has ended")
    run(cluster, "--no-wait", "--target", "::0").good()


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("::2", "has no such GPU"),
        ("::GPU-none", "0 (h100"),
        ("nowhere::0", "no node nowhere"),
    ],
)
def test_what_is_not_there_is_refused(cluster: Cluster, word: str, why: str) -> None:
    refused = run(cluster, "--target", word)
    assert refused.code == 64
    assert why in refused.stderr
    assert cluster.said("squeue", "-h", "-a") == ""


NAMES = [
    ("--gres=gpu:1",), ("--gres=gpu:h100:1",), ("--gres=gpu:nvidia",), ("--gpus=H100:1",),
    ("--gres=gpu:nvidia_h100_80gb_hbm3:1",), ("--gpus-per-task=nvidia:1", "-n1"),
]  # fmt: skip


def test_names_and_counts_mean_any_of_them(cluster: Cluster) -> None:
    held(cluster, "::0")
    for words in NAMES:
        assert cluster.said("srun", *words, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "1", words


def test_two_of_them(cluster: Cluster) -> None:
    for words in (("--gres=gpu:2",), ("--gpus=2",), ("--gres=gpu:h100:2",), ("--gpus=nvidia:2",)):
        assert cluster.said("srun", *words, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES") == "0,1"
    step = "srun --gres=gpu:h100:1 sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    job = cluster.submit("--gres=gpu:gpu1:1", script=step)
    wait_until(lambda: cluster.output(job) != "", "its step has run")
    assert cluster.output(job) == "1\n"


def test_a_name_that_it_has_not(cluster: Cluster) -> None:
    refused = cluster.exec("srun", "--gres=gpu:t4:1", "true")
    assert refused.code != 0
    assert "no GPU named t4, it has: gpu0 (1), gpu1 (1)" in refused.stderr


def test_memory_for_each_gpu(cluster: Cluster) -> None:
    """DefMemPerGPU counts GPUs of several types together."""

    def mem(gres: str) -> str:
        script = "scontrol show job $SLURM_JOB_ID"
        words = cluster.said("srun", f"--gres={gres}", "sh", "-c", script).split()
        tres = next(word for word in words if word.startswith("AllocTRES="))
        return next(item for item in tres.split(",") if item.startswith("mem="))

    assert mem("gpu:gpu0:1,gpu:gpu1:1") == mem("gpu:2") != mem("gpu:1")


def test_by_model_it_is_refused_and_said_how_to_change(cluster: Cluster) -> None:
    """The last of this file: it makes the cluster another one."""
    cluster.configure("--gres-type", "model").good()
    wait_until(lambda: cluster.node()[1] == "idle", "the first job has ended")
    assert cluster.node()[0] == "gpu:h100:2"
    refused = run(cluster, "--target", "::0")
    assert refused.code == 2
    assert "configure-environment --gres-type index" in refused.stderr
