"""`dshpc config show|diff|accept|reject`, `dshpc reconfigure` and `dshpc status` on a real cluster."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Outcome, made, wait_until

IN_SLURM = ("slurm.conf", "gres.conf", "cgroup.conf", "job_submit.lua", "cli_filter.lua")
OWN = ("config/slurm.conf", "config/gres.conf", "config/cgroup.conf", "docker-compose.yml")
MARKER = "# USER_CUSTOMIZED=true\n"


@pytest.fixture(scope="module")
def shared(engine: str) -> Iterator[Cluster]:
    with made("config") as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """Two made-up H100, all files ours, nothing remembered and no job in the queue."""
    for path in [*(shared.folder / "config").glob("*"), *shared.folder.glob("docker-compose.yml*")]:
        path.unlink()
    for name in ("remembered.json", "rejected.json"):
        (shared.folder / ".dshpc" / name).unlink(missing_ok=True)
    (shared.folder / "dshpc.yaml").unlink(missing_ok=True)
    shared.configure("--simulate", "h100:2").good()
    shared.said("scancel", "--user=root")
    wait_until(lambda: shared.node() == ("gpu:h100:2", "idle"), "the node is idle")
    return shared


def stamps(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time of the last change and hash of each file that a user may make his own."""
    found = {}
    for name in OWN:
        status = (folder / name).stat()
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        found[name] = (status.st_mode, status.st_mtime_ns, digest)
    return found


def edit(path: Path, old: str, new: str) -> str:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path.read_text()


def differing(cluster: Cluster) -> list[str]:
    """Lines of `dshpc config diff`, less the disk's size, which only the container can see."""
    outcome = cluster.dshpc("config", "diff", "--json")
    lines = [
        re.sub(r" TmpDisk=[0-9]+", "", line)
        for item in outcome.report["differences"]
        for line in item["diff"].splitlines()
        if line[0] in "+-" and not line.startswith(("+++ ", "--- "))
    ]
    assert outcome.code == (1 if lines else 0)
    return [line for line in lines if ("-" if line[0] == "+" else "+") + line[1:] not in lines]


def partition(cluster: Cluster) -> str:
    return cluster.said("sinfo", "-h", "-o", "%P").rstrip("*")


def test_show_is_what_is_in_force(cluster: Cluster) -> None:
    for name in IN_SLURM:
        said = cluster.dshpc("config", "show", name).good()
        assert said.stdout == cluster.exec("cat", f"/etc/slurm/{name}").good().stdout, name
        assert said.stderr == ""
        value = cluster.dshpc("config", "show", name, "--json").good().report
        assert value["schema"] == "dshpc.config-file/1"
        assert (value["text"], value["owner"]) == (said.stdout, "rendered")
        assert value["sha256"] == hashlib.sha256(said.stdout.encode()).hexdigest()
        assert value["where"] == f"{cluster.container}:/etc/slurm/{name}"
    compose = cluster.dshpc("config", "show", "docker-compose.yml").good().stdout
    assert compose == (cluster.folder / "docker-compose.yml").read_text()
    assert differing(cluster) == []


def test_a_cluster_that_is_down(cluster: Cluster) -> None:
    cluster.dshpc("down").good()
    said = cluster.dshpc("config", "show", "config/slurm.conf").good()
    assert said.stdout == (cluster.folder / "config/slurm.conf").read_text()
    assert "The cluster is down" in said.stderr
    refused = cluster.dshpc("reconfigure")
    assert (refused.code, "dshpc up" in refused.stderr) == (2, True)


def test_marked_files_are_never_written_to(cluster: Cluster) -> None:
    for name in OWN:
        path = cluster.folder / name
        path.write_text(path.read_text() + MARKER)
    before = stamps(cluster.folder)
    names = sorted(path.name for path in (cluster.folder / "config").iterdir())
    acts: tuple[Callable[[], Outcome], ...] = (
        lambda: cluster.configure("--partition", "other"),
        lambda: cluster.dshpc("restart"),
        lambda: cluster.dshpc("reconfigure"),
        lambda: cluster.dshpc("down"),
        lambda: cluster.dshpc("up"),
        cluster.configure,
    )
    for act in acts:
        act().good()
        assert stamps(cluster.folder) == before
    assert sorted(path.name for path in (cluster.folder / "config").iterdir()) == names
    assert partition(cluster) == "debug", "the marked text is the one that is used"
    for name in OWN:
        assert cluster.dshpc("config", "show", name, "--json").good().report["owner"] == "custom"
        refused = cluster.dshpc("config", "accept", name, "--yes")
        assert (refused.code, "marked as yours" in refused.stderr) == (2, True)
    assert stamps(cluster.folder) == before


def test_an_edit_its_new_text_and_both_answers(cluster: Cluster) -> None:
    path = cluster.folder / "config/slurm.conf"
    beside = path.with_name("slurm.conf.dshpc-new")
    ours = path.read_text()
    edited = edit(path, "PartitionName=debug", "PartitionName=byhand")

    differs = cluster.dshpc("config", "diff", "slurm.conf")
    assert differs.code == 1
    assert "-PartitionName=byhand" in differs.stdout
    cluster.dshpc("reconfigure").good()
    assert (partition(cluster), path.read_text(), beside.exists()) == ("byhand", edited, False)
    assert cluster.dshpc("config", "diff").good().stdout == ""
    value = cluster.dshpc("status", "--json").good().report
    assert value["files"]["slurm.conf"] == "edited"

    cluster.configure().good()
    assert (path.read_text(), beside.read_text()) == (edited, ours)
    new = cluster.dshpc("config", "diff", "--json")
    assert (new.code, new.report["differences"][0]["kind"]) == (1, "new")

    assert cluster.dshpc("config", "reject", "slurm.conf").code == 2, "nobody is there to ask"
    assert beside.exists()
    cluster.dshpc("config", "reject", "slurm.conf", "--yes").good()
    cluster.configure().good()
    assert (path.read_text(), beside.exists()) == (edited, False), "the same is not offered again"

    cluster.configure("--partition", "newer").good()
    assert "PartitionName=newer" in beside.read_text()
    said = cluster.dshpc("config", "accept", "--all").good()
    assert "dshpc reconfigure" in said.stdout
    assert (path.with_name("slurm.conf.dshpc-old").read_text(), beside.exists()) == (edited, False)
    cluster.dshpc("reconfigure").good()
    assert partition(cluster) == "newer"
    value = cluster.dshpc("config", "show", "slurm.conf", "--json").good().report
    assert value["owner"] == "rendered"
    assert cluster.configure().good().actions["config/slurm.conf"] == "unchanged"


def test_reconfigure_while_a_job_runs_and_a_text_that_is_refused(cluster: Cluster) -> None:
    job = cluster.submit("--gres=gpu:1", script="sleep 300")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "the job runs")
    path = cluster.folder / "config/slurm.conf"
    text = edit(path, "PartitionName=debug", "SchedulerParameters=defer\nPartitionName=debug")
    done = cluster.dshpc("reconfigure", "--json").good().report
    assert (done["ready"], done["reconfigure"]["exit_code"]) == (True, 0)
    assert "defer" in cluster.said("scontrol", "show", "config")
    edit(path, "SchedulerParameters", "SchedulerParamters")
    refused = cluster.dshpc("reconfigure")
    assert refused.code == 2
    for word in ("config/slurm.conf, line", "SchedulerParamters", "Did you mean"):
        assert word in refused.stdout
    assert cluster.dshpc("config", "show", "slurm.conf").good().stdout == text
    assert cluster.dshpc("status").code == 1, "it runs, with what was good"
    assert cluster.job_state(job)[0] == "RUNNING"


def test_settings_that_a_reconfigure_cannot_bring(cluster: Cluster) -> None:
    cluster.dshpc("config", "set", "partitions", "short=1:00:00", "long").good()
    said = cluster.dshpc("reconfigure").good().stdout
    assert "Not in force: partitions." in said
    cluster.configure().good()
    assert cluster.said("sinfo", "-h", "-o", "%P").split() == ["debug*", "short", "long"]
    assert "Not in force" not in cluster.dshpc("reconfigure").good().stdout


def test_jobs_that_cannot_run_are_explained(cluster: Cluster) -> None:
    go = cluster.work / "go"
    go.unlink(missing_ok=True)
    runs = cluster.submit("--gres=gpu:1", script=f"until [ -e {go} ]; do sleep 0.2; done")
    both = cluster.submit("--gres=gpu:h100:2", "-J", "a|b c", script="true")
    held = cluster.submit("--hold", script="true")
    waits = cluster.submit("--begin=now+1hour", script="true")
    never = cluster.submit(f"--dependency=afterok:{runs}", script="true")
    try:
        value = cluster.dshpc("status", "--json").good().report["pending"]
        assert [item["job"] for item in value["jobs"]] == [held], "the others only wait"
        cluster.configure("--simulate", "h100:1").good()
        cluster.said("scancel", runs)
        told = (f"{both} (root, a|b c): it asks for gpu:h100:2, the node has gpu:h100:1",
                f"{held} (root, wrap): it is held; let it go: dshpc scontrol release {held}",
                f"{never} (root, wrap): what it waits for can no longer happen")  # fmt: skip

        def all_told() -> bool:
            text = cluster.dshpc("status").good().stdout
            return all(line in text for line in told)

        wait_until(all_told, "each is explained")
        text = cluster.dshpc("status").good().stdout
        assert "3 queued jobs cannot run" in text
        assert f"{waits} (" not in text
    finally:
        go.touch()
    assert cluster.job_state(both)[0] == "PENDING"
    cluster.configure("--simulate", "h100:2").good()
    wait_until(lambda: cluster.job_state(both)[0] == "COMPLETED", "it runs once both are back")


def test_a_node_that_a_person_took_out(cluster: Cluster) -> None:
    node = ("scontrol", "update", f"nodename={cluster.prefix}")
    cluster.said(*node, "state=drain", "reason=new fans")
    job = cluster.submit(script="true")
    try:
        wait_until(lambda: cluster.job_state(job)[1] not in ("None", "Priority"), "it was tried")
        outcome = cluster.dshpc("status", "--json")
        (item,) = outcome.report["pending"]["jobs"]
        assert item["job"] == job
        assert item["why"].startswith(f"the node {cluster.prefix} is drained: new fans")
        json.dumps(outcome.report)
    finally:
        cluster.said(*node, "state=resume")
    wait_until(lambda: cluster.job_state(job)[0] == "COMPLETED", "the job has run")
