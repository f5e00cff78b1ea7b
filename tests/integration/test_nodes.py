"""Several nodes on one machine: each a container, with real daemons of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, as_root, made, run, wait_until
from tests.integration.conftest import docker
from tests.integration.engines import Engine
from tests.integration.test_ssh import Ssh, ended

pytestmark = pytest.mark.engines(
    "docker",
    why="kills and pauses containers by Docker's words; the built-in engine: test_many_nodes",
)

LIST = "h100:2,h100:2,t4:1,none"
# What an MPI library does as it starts: it learns who it is from PMIx, and meets the others
PMIX = """
import ctypes, socket
class Proc(ctypes.Structure):
    _fields_ = [("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]
pmix, me = ctypes.CDLL("libpmix.so.2"), Proc()
assert pmix.PMIx_Init(ctypes.byref(me), None, ctypes.c_size_t(0)) == 0
assert pmix.PMIx_Fence(None, ctypes.c_size_t(0), None, ctypes.c_size_t(0)) == 0
print(me.rank, socket.gethostname(), flush=True)
assert pmix.PMIx_Finalize(None, ctypes.c_size_t(0)) == 0
"""


@pytest.fixture(scope="module")
def cluster(engine: Engine, standard: Cluster) -> Iterator[Cluster]:
    with made("nodes", engine=engine) as found:
        found.configure("--nodes", LIST).good()
        yield found


def names(cluster: Cluster) -> list[str]:
    return [cluster.prefix, *(f"{cluster.prefix}-{number}" for number in (2, 3, 4))]


def state(cluster: Cluster, node: str) -> str:
    return cluster.said("sinfo", "-h", "-N", "-n", node, "-o", "%T")


def containers(cluster: Cluster) -> dict[str, str]:
    """Container -> when it was started, of those that run."""
    told = docker("ps", "--format", "{{.Names}} {{.ID}}", "--filter", f"name={cluster.container}")
    return dict(line.split() for line in told.splitlines())


def test_each_node_has_what_was_asked_for_and_is_told(cluster: Cluster) -> None:
    told = json.loads(cluster.dshpc("node", "list", "--json").good().stdout)
    assert told["schema"] == "dshpc.nodes/1"
    assert [set(node) for node in told["nodes"]] == [
        {"name", "host", "role", "state", "gres", "address", "last_seen", "drift"}
    ] * 4
    assert [(node["name"], node["role"], node["gres"]) for node in told["nodes"]] == list(
        zip(
            names(cluster),
            ["controller", "worker", "worker", "worker"],
            ["gpu:h100:2", "gpu:h100:2", "gpu:t4:1", ""],
            strict=True,
        )
    )
    assert {node["state"] for node in told["nodes"]} <= {"idle", "idle+planned"}
    gpus = json.loads(cluster.dshpc("gpus", "--json").good().stdout)
    assert [len(gpus["gpus"]), *(len(node["gpus"]) for node in gpus["nodes"])] == [2, 2, 1, 0]
    assert docker("port", cluster.container) == ""


def test_jobs_on_all_of_them(cluster: Cluster) -> None:
    whole = cluster.said("srun", "-N4", "sh", "-c", "echo $(hostname) $(id -un) $HOME; pwd").split(
        "\n"
    )
    assert sorted(set(whole) - {whole[1]})[0].split()[0] in names(cluster)
    assert {line.split()[0] for line in whole if " " in line} == set(names(cluster))
    there = cluster.said("srun", "-N2", "--gres=gpu:h100:1", "printenv", "SLURMD_NODENAME")
    assert set(there.split()) == set(names(cluster)[:2])
    for words, node in (
        ("--gres=gpu:nvidia:2", None),
        ("--constraint=t4", 2),
        ("--gres=gpu:t4:1", 2),
    ):
        where = cluster.said("srun", words, "hostname")
        assert where in names(cluster)[:2] if node is None else where == names(cluster)[node]
    refused = cluster.exec("srun", "--gres=gpu:a100:1", "true")
    assert "this cluster has no GPU named a100, it has: h100 (2), t4 (1)" in refused.stderr
    parts = cluster.said(
        "srun", "-n1", "--gres=gpu:h100:1", "hostname", ":", "-n1", "--gres=gpu:t4:1", "hostname"
    )
    assert len(set(parts.split())) == 2
    job = cluster.submit("--wait", "--array=1-4", "--exclusive", script="hostname; sleep 1")
    assert job


def test_a_user_and_his_files_are_the_same_everywhere(cluster: Cluster) -> None:
    """The user is made known on the controller alone; a job on each node is his."""
    cluster.said("dshpc-node", "add-user", "4711", "4711", "ada")
    script = 'id -un >>"$HOME/where"; hostname >>"$HOME/where"; touch "$HOME/$(hostname)"'
    argv = [
        "setpriv",
        "--reuid=4711",
        "--regid=4711",
        "--clear-groups",
        "env",
        "HOME=/var/lib/dshpc/home/ada",
    ]
    cluster.said(*argv, "srun", "-N4", "-D", "/tmp", "sh", "-c", script)
    left = cluster.said("ls", "/var/lib/dshpc/home/ada").split()
    assert set(left) == {*names(cluster), "where"}
    assert set(cluster.said("cat", "/var/lib/dshpc/home/ada/where").split()) == {
        "ada",
        *names(cluster),
    }


def test_tasks_of_a_job_find_each_other_by_pmix(cluster: Cluster) -> None:
    (cluster.work / "hello.py").write_text(PMIX)
    told = cluster.said(
        "srun",
        "--mpi=pmix",
        "-N4",
        "-n8",
        "--overcommit",
        "python3",
        str(cluster.work / "hello.py"),
    )
    found = [line.split() for line in told.splitlines()]
    assert sorted(int(rank) for rank, _ in found) == list(range(8))
    assert {node for _, node in found} == set(names(cluster))


def test_methods_are_judged_by_the_node_that_can(cluster: Cluster) -> None:
    said = cluster.dshpc("run", "--dry-run", "--gpu-type", "t4", "--gpus", "1", "--", "true").good()
    assert "gpu:t4:1" in said.stdout
    # So are those of a workflow
    steps, where = cluster.work / "steps.yaml", cluster.work / "where"
    job = {
        "command": "sh",
        "args": ["-c", f"hostname >{where}"],
        "resources": {"gpus": 1, "gpu_type": "t4"},
    }
    steps.write_text(json.dumps({"jobs": {"one": job}}))
    cluster.dshpc("workflow", "run", str(steps), "--wait").good()
    assert where.read_text().strip() == names(cluster)[2]
    refused = cluster.dshpc("run", "--gpus", "3", "--", "true")
    assert refused.code == 2
    assert "it needs 3 GPUs" in refused.stderr
    assert cluster.dshpc("run", "--wait", "--", "hostname").good()


def test_ssh_enters_a_job_on_whichever_node(cluster: Cluster, tmp_path: Path) -> None:
    """The first connection, later ones, and those by srun's stream, which other machines' nodes take."""
    tmp_path.chmod(0o700)
    ssh = Ssh(cluster, tmp_path)
    node = names(cluster)[2]
    said = "echo $(hostname) $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES"
    where, job, gpu = ssh.said("gpu-t4", said).split()
    assert (where, gpu) == (node, "0")
    assert ssh.said("gpu-t4", said) == f"{node} {job} 0"
    ssh.config.write_text(ssh.config.read_text().replace("ssh-proxy", "ssh-proxy --srun"))
    assert ssh.said("gpu-t4", said) == f"{node} {job} 0"
    assert ssh.run("gpu-t4", "cat", given="x" * 100_000).stdout == "x" * 100_000
    ended(ssh)


def test_a_slurmd_and_a_container_that_are_killed_come_back(cluster: Cluster) -> None:
    node = names(cluster)[1]
    job = cluster.submit("-w", node, script="sleep 900")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "the job runs")
    began = cluster.said("scontrol", "show", "node", node).partition("SlurmdStartTime=")[2][:19]
    docker("exec", f"{cluster.container}-2", "pkill", "-KILL", "-x", "slurmd")

    def is_back() -> bool:
        now = cluster.said("scontrol", "show", "node", node).partition("SlurmdStartTime=")[2][:19]
        return now > began and state(cluster, node) in ("mixed", "allocated")

    wait_until(is_back, "slurmd is back")
    assert cluster.job_state(job)[0] == "RUNNING"
    first = docker("inspect", "-f", "{{.State.Pid}}", f"{cluster.container}-2").strip()
    run(as_root("kill", "-KILL", first)).good()
    restarts = ["scontrol", "show", "job", job]
    wait_until(lambda: "Restarts=1" in cluster.said(*restarts), "it was requeued", 150)
    # At once; where the machine is busy, after the two minutes that Slurm itself has it wait
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "it runs again", 180)
    cluster.said("scancel", job)


def test_one_that_is_stopped_holds_up_nothing_and_is_named(cluster: Cluster) -> None:
    node = names(cluster)[2]
    docker("stop", f"{cluster.container}-3")
    assert state(cluster, node) == "down"
    assert len(cluster.said("srun", "-N3", "--immediate=20", "hostname").split()) == 3
    told = cluster.dshpc("doctor", "--json")
    (found,) = [it for it in json.loads(told.stdout)["findings"] if it["id"] == "DSH-SL-018"]
    assert found["state"] == "error"
    assert [fix["command"] for fix in found["fix"]] == [f"dshpc node resume {node}"]
    # The key that is made meanwhile is the one that it starts with
    rotated = json.loads(cluster.dshpc("key", "rotate", "--json").good().stdout)
    assert rotated["away"] == [node]
    cluster.dshpc("node", "resume", node).good()
    assert len(cluster.said("srun", "-N4", "hostname").split()) == 4


def test_drained_by_a_person_it_stays_so_until_he_takes_it_back(cluster: Cluster) -> None:
    node = names(cluster)[3]
    cluster.dshpc("node", "drain", node, "--reason", "new disk").good()
    docker("restart", f"{cluster.container}-4")
    wait_until(
        lambda: "drain" in state(cluster, node) and "*" not in state(cluster, node), "it is back"
    )
    assert "new disk" in cluster.dshpc("node", "show", node).good().stdout
    cluster.dshpc("node", "resume", node).good()
    wait_until(lambda: state(cluster, node) == "idle", "it takes jobs")


def test_nodes_go_and_change_while_jobs_elsewhere_go_on(cluster: Cluster) -> None:
    stays = cluster.submit("-w", names(cluster)[1], script="sleep 900")
    goes = cluster.submit("-w", names(cluster)[3], script="sleep 900")
    wait_until(lambda: cluster.job_state(goes)[0] == "RUNNING", "both run")
    before = containers(cluster)
    refused = cluster.configure("--nodes", "h100:2,h100:2,v100:2")
    assert refused.code == 2
    assert f"{names(cluster)[2]}, {names(cluster)[3]} were not" in refused.report["error"]["brief"]
    assert containers(cluster) == before
    cluster.configure("--nodes", "h100:2,h100:2,v100:2", "--stop-jobs").good()
    after = containers(cluster)
    assert cluster.job_state(stays)[0] == "RUNNING"
    kept = {cluster.container, f"{cluster.container}-2"}
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert set(after) == {*kept, f"{cluster.container}-3"}
    assert cluster.said("srun", "--gres=gpu:v100:1", "hostname") == names(cluster)[2]
    told = json.loads(cluster.dshpc("node", "list", "--json").good().stdout)["nodes"]
    assert len(told) == 3
    assert "t4" in json.dumps(told[2]["drift"])
    assert "v100" in json.dumps(told[2]["drift"])


def test_back_to_one_node(cluster: Cluster) -> None:
    cluster.configure("--nodes", "1", "--simulate", "h100:2", "--stop-jobs").good()
    assert list(containers(cluster)) == [cluster.container]
    assert cluster.node() == ("gpu:h100:2", "idle")
    told = json.loads(cluster.dshpc("node", "list", "--json").good().stdout)["nodes"]
    assert [(node["name"], node["role"]) for node in told] == [(cluster.prefix, "controller")]
    text = Path(cluster.folder / "docker-compose.yml").read_text()
    assert re.findall(r"container_name: (\S+)", text) == [f'"{cluster.container}"']
