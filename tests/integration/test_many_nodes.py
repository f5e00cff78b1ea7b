"""Several nodes that share the machine's network, on the built-in engine; and what looks at all nodes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.integration.cluster import Cluster, made, wait_until
from tests.integration.engines import Engine
from tests.integration.test_nodes import PMIX, names

pytestmark = pytest.mark.engines("builtin", "docker")

LIST = "h100:2,t4:1,h100:1"
MANY = 130  # more than Slurm looks at as a job ends


@pytest.fixture(scope="module")
def cluster(engine: Engine, standard: Cluster) -> Iterator[Cluster]:
    with made("many", engine=engine) as found:
        found.configure("--nodes", LIST).good()
        yield found


def own(cluster: Cluster) -> list[str]:
    return names(cluster)[:3]


def listed(cluster: Cluster) -> dict[str, str]:
    told = json.loads(cluster.dshpc("node", "list", "--json").good().stdout)["nodes"]
    return {node["name"]: node["gres"] for node in told}


def test_jobs_on_all_of_them_and_from_one_to_others(cluster: Cluster) -> None:
    assert listed(cluster) == dict(
        zip(own(cluster), ("gpu:h100:2", "gpu:t4:1", "gpu:h100:1"), strict=True)
    )
    assert set(cluster.said("srun", "-N3", "hostname").split()) == set(own(cluster))
    (cluster.work / "hello.py").write_text(PMIX)
    script = "srun -N2 -n2 hostname; srun --mpi=pmix -N2 -n4 --overcommit python3 hello.py"
    nodes = ",".join(own(cluster)[1:])
    job = cluster.submit("--wait", "-N2", "-n2", "-w", nodes, script=script)
    lines = cluster.output(job.split()[0]).split("\n")
    assert {line for line in lines if line and " " not in line} == set(own(cluster)[1:])
    ranks = [line.split() for line in lines if re.fullmatch(r"\d+ \S+", line)]
    assert sorted(rank for rank, _ in ranks) == ["0", "1", "2", "3"]


def test_a_job_is_told_the_gpus_of_its_own_node(cluster: Cluster) -> None:
    done = cluster.dshpc("run", "--gpu-type", "t4", "--gpus", "1", "--wait", "--", "sleep", "1")
    assert "running on GPU 0 (Tesla T4" in done.good().stderr
    jobs = json.loads(cluster.dshpc("job", "list", "--json").good().stdout)["jobs"]
    last = max(jobs, key=lambda job: int(job["number"]))
    (gpu,) = last["gpus"]
    assert (gpu["node"], gpu["type"], gpu["name"]) == (own(cluster)[1], "t4", "Tesla T4")


def test_one_job_for_each_target_and_one_on_several_nodes(cluster: Cluster) -> None:
    first, second, third = own(cluster)
    words = ("--target", f"{first}::0,1", "-t", f"{second}::0", "--json", "--", "hostname")
    told = json.loads(cluster.dshpc("run", *words).good().stdout)
    assert len(told["jobs"]) == 2
    for job, node in zip(told["jobs"], (first, second), strict=True):
        cluster.completed(job["job_id"])
        shown = cluster.said("scontrol", "show", "job", job["job_id"])
        assert f" NodeList={node}\n" in shown
    both = cluster.dshpc("run", "--nodes", "2", "--gpus", "1", "--wait", "--", "hostname").good()
    assert set(both.stdout.split()) == {first, third}
    refused = cluster.dshpc("run", "--nodes", "2", "--gpus", "2", "--", "true")
    assert refused.code == 2
    assert "it needs 2 nodes with 2 GPUs each, this cluster has 1" in refused.stderr
    check = cluster.dshpc("method", "check", "gpu-report", "--gpu-type", "h100").good().stdout
    assert f"2 nodes have 1x h100 (80 GB) free now: {first}, {third}." in check


def test_what_looks_looks_at_all_of_them(cluster: Cluster) -> None:
    second = own(cluster)[1]
    facts = json.loads(cluster.dshpc("detect", "--node", second, "--json").good().stdout)
    assert [gpu["slurm_type"] for gpu in facts["gpus"]["devices"]] == ["t4"]
    assert facts["docker"] is None
    assert "Tesla T4" in cluster.dshpc("gpus", "--node", second).good().stdout
    wrong = cluster.dshpc("detect", "--node", "nobody")
    assert wrong.code == 64
    assert "has no node nobody" in wrong.stderr
    found = json.loads(cluster.dshpc("doctor", "--json").stdout)["findings"]
    across = {each["id"]: each["state"] for each in found if each["id"] >= "DSH-SL-060"}
    assert across == {f"DSH-SL-06{number}": "ok" for number in range(9)}


def test_behind_many_that_wait_another_kind_begins_at_once(cluster: Cluster) -> None:
    holder = cluster.submit("--gres=gpu:t4:1", script="sleep 900")
    wait_until(lambda: cluster.job_state(holder)[0] == "RUNNING", "the T4 is taken")
    loop = "sbatch -Q -o /dev/null -D /tmp -J waits --gres=gpu:t4:1 --wrap 'sleep 900' || exit 1"
    cluster.exec("sh", "-c", f"for at in $(seq {MANY}); do {loop}; done", timeout_s=600).good()
    began = time.monotonic()
    job = cluster.submit("--gres=gpu:h100:1", script="true")
    cluster.completed(job, 50)
    assert time.monotonic() - began < 50  # by itself Slurm takes up to 60 s
    cluster.said("scancel", "-u", "root")


def test_one_is_removed_and_the_others_keep_name_and_jobs(cluster: Cluster) -> None:
    first, second, third = own(cluster)
    stays = cluster.submit("-w", third, script="sleep 900")
    goes = cluster.submit("-w", second, script="sleep 900")
    wait_until(lambda: cluster.job_state(goes)[0] == "RUNNING", "both run")
    refused = cluster.dshpc("node", "remove", second, "--yes")
    assert refused.code == 2
    assert f"Node {second} was not removed: 1 job is running." in refused.stderr
    assert set(listed(cluster)) == {first, second, third}
    for name, code in (("nobody", 64), (first, 64)):
        assert cluster.dshpc("node", "remove", name).code == code
    cluster.dshpc("node", "remove", second, "--stop-jobs").good()
    assert listed(cluster) == {first: "gpu:h100:2", third: "gpu:h100:1"}
    assert cluster.job_state(stays)[0] == "RUNNING"
    assert f"{cluster.container}-2" not in cluster.engine.names("container")
    rotated = json.loads(cluster.dshpc("key", "rotate", "--json").good().stdout)
    assert "away" not in rotated or rotated["away"] == []
    assert cluster.job_state(stays)[0] == "RUNNING"
    cluster.configure("--nodes", LIST).good()
    assert set(listed(cluster)) == {first, second, third}
    assert cluster.job_state(stays)[0] == "RUNNING"
    assert cluster.said("srun", "--gres=gpu:t4:1", "hostname") == second
    cluster.said("scancel", "-u", "root")


def test_one_that_slurm_alone_knows_is_removed_and_the_key_is_changed(cluster: Cluster) -> None:
    cluster.said("scontrol", "create", "NodeName=ghost", "CPUs=1", "RealMemory=100", "State=CLOUD")
    assert "ghost" in listed(cluster)
    done = cluster.dshpc("node", "remove", "ghost").good()
    assert "The cluster has a new key." in done.stdout
    assert "ghost" not in listed(cluster)
    assert len(cluster.said("srun", "-N3", "hostname").split()) == 3
