"""`dshpc config show|diff|accept|reject`, `dshpc reconfigure` and `dshpc status` on a real cluster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import (
    Cluster,
    Outcome,
    command,
    environment,
    made,
    run,
    tree,
    wait_until,
)
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")

IN_SLURM = ("slurm.conf", "gres.conf", "cgroup.conf", "job_submit.lua", "cli_filter.lua")
OWN = ("config/slurm.conf", "config/gres.conf", "config/cgroup.conf", "docker-compose.yml")
MARKER = "# USER_CUSTOMIZED=true\n"


@pytest.fixture(scope="module")
def shared(engine: Engine) -> Iterator[Cluster]:
    with made("config", engine=engine) as cluster:
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
    assert cluster.partition == "debug", "the marked text is the one that is used"
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
    assert "+PartitionName=byhand" in differs.stdout
    cluster.dshpc("reconfigure").good()
    assert (cluster.partition, path.read_text(), beside.exists()) == ("byhand", edited, False)
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
    assert cluster.partition == "newer"
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


def test_ctrl_c_in_a_reconfigure_leaves_the_former_or_the_new_and_says_which(
    cluster: Cluster,
) -> None:
    """And nothing of it goes on in the container."""
    job = cluster.submit("--gres=gpu:1", script="sleep 300")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "the job runs")
    path = cluster.folder / "config/slurm.conf"
    edit(path, "PartitionName=debug", "FirstJobId=1\nPartitionName=debug")
    began = time.monotonic()
    cluster.dshpc("reconfigure").good()
    takes_s = time.monotonic() - began
    first, said, inside = 1, "", ("pgrep", "-f", "dshpc-nod[e] reconfigure")
    for nth, share in enumerate((0.0, 0.5, 0.8), 2):
        edit(path, f"FirstJobId={first}\n", f"FirstJobId={nth}\n")
        with subprocess.Popen(
            command("dshpc", "reconfigure"), cwd=cluster.folder, env=environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as child:  # fmt: skip
            wait_until(
                lambda: cluster.exec(*inside).code == 0 or child.poll() is not None, "it has begun"
            )
            time.sleep(share * takes_s)
            child.send_signal(signal.SIGINT)
            told, _ = child.communicate(timeout=120)
        said += told
        assert cluster.exec(*inside).code == 1, told
        before = "before anything was changed" in told
        is_done = (
            child.returncode in (0, -signal.SIGINT) and "Isolation " in told
        )  # it came at the end
        assert before or "came too late" in told or is_done, told
        number = first if before else nth
        assert f"FirstJobId              = {number}\n" in cluster.said("scontrol", "show", "config")
        edit(path, f"FirstJobId={nth}\n", f"FirstJobId={number}\n")
        first = number
        assert cluster.job_state(job)[0] == "RUNNING"
    assert "before anything was changed" in said, said
    cluster.dshpc("reconfigure").good()
    cluster.said("scancel", job)


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
        cluster.configure("--simulate", "h100:1", "--stop-jobs").good()
        cluster.said("scancel", runs)
        told = (f"{both} (root, a|b c): it asks for gpu:h100:2, the node has gpu:h100:1",
                f"{held} (root, wrap): it is held; to release it: dshpc scontrol release {held}",
                f"{never} (root, wrap): what it waits for can no longer happen")  # fmt: skip

        def all_told() -> bool:
            text = cluster.dshpc("status").good().stdout
            return all(line in text for line in told)

        wait_until(all_told, "each is explained", 150)  # Slurm looks at dependencies once a minute
        text = cluster.dshpc("status").good().stdout
        assert "1 queued job is held:" in text
        assert "2 queued jobs cannot run:" in text
        assert f"{waits} (" not in text
    finally:
        go.touch()
    assert cluster.job_state(both)[0] == "PENDING"
    cluster.configure("--simulate", "h100:2").good()
    cluster.completed(both, 150)


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
    cluster.completed(job)
    assert cluster.dshpc("status").code == 0


def test_a_reconfigure_leaves_a_node_alone_that_a_person_took_out(cluster: Cluster) -> None:
    node = ("scontrol", "update", f"nodename={cluster.prefix}")
    cluster.said(*node, "state=drain", "reason=new fans")
    try:
        edit(cluster.folder / "config/slurm.conf", "PartitionName=debug", "PartitionName=byhand")
        for _ in range(2):  # with something to do, and without
            done = cluster.dshpc("reconfigure").good()
            assert f"Node {cluster.prefix} is drained (new fans), by a person" in done.stdout
            assert (cluster.partition, cluster.node()[1]) == ("byhand", "drained")
        back = re.search(r"To use node \S+ again: (.+)", cluster.dshpc("status").stdout)
        assert back is not None
    finally:
        cluster.said(*node, "state=resume")
    cluster.said(*node, "state=drain", "reason=again")
    program, *words = back[1].split()
    assert program == "dshpc"
    cluster.dshpc(*words).good()
    wait_until(lambda: cluster.node()[1] == "idle", "it takes jobs again")


def test_a_refused_run_leaves_what_was_in_force(cluster: Cluster) -> None:
    before, began = tree(cluster.folder / "config"), cluster.started_at
    texts = cluster.texts()
    kept = {name: (cluster.folder / ".dshpc" / name).read_bytes()
            for name in ("remembered.json", "runtime.json")}  # fmt: skip
    job = cluster.submit("--gres=gpu:1", script="sleep 600")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "the job runs")
    flags = ("--dir", str(cluster.folder), "--shm-size", "2g", "--partition", "other")
    refused = run(command("configure-environment", *flags))
    assert refused.code == 2
    assert "files of this folder are as they were" in refused.stdout
    assert (tree(cluster.folder / "config"), cluster.texts()) == (before, texts)
    assert kept == {name: (cluster.folder / ".dshpc" / name).read_bytes() for name in kept}
    cluster.dshpc("up").good()
    assert (cluster.started_at, cluster.job_state(job)[0]) == (began, "RUNNING")
    broken = cluster.configure("--shm-size", "3g", "--base-image", "no.such.example/image:1")
    assert (broken.code != 0, cluster.texts()) == (True, texts)


def test_a_wrong_setting_is_told_before_anything_slow(cluster: Cluster) -> None:
    for flags in (("--slurm-conf-extra", "NodeName=x"), ("--partitions", "debug")):
        told = cluster.configure(*flags)
        assert told.code == 64
        assert {step["state"] for step in told.steps.values()} == {"skipped"}
    told = cluster.configure("--devices", "7")
    states = {name: step["state"] for name, step in told.steps.items()}
    assert told.code == 64
    assert (states.pop("probe"), states.pop("plan")) == ("ok", "failed")
    assert set(states.values()) == {"skipped"}


def test_status_tells_of_an_edited_compose_file(cluster: Cluster) -> None:
    def told() -> tuple[str, bool]:
        value = cluster.dshpc("status", "--json").good().report
        late = any("edited after the container was made" in note for note in value["notes"])
        return value["files"]["docker-compose.yml"], late

    assert told() == ("rendered", False)
    edit(cluster.folder / "docker-compose.yml", 'shm_size: "1g"', 'shm_size: "2g"')
    assert told() == ("edited", True)
    cluster.dshpc("up").good()
    assert told() == ("edited", False)
    assert cluster.inspect()["HostConfig"]["ShmSize"] == 2 << 30
    path = cluster.folder / "docker-compose.yml"
    path.write_text(f"{path.read_text()}# a note\n")
    assert told() == ("edited", True)
    cluster.dshpc("up").good()
    assert told() == ("edited", False), "compose has kept the container, and says no more"


def test_an_edited_compose_file_that_is_taken_back(cluster: Cluster) -> None:
    """Its label stays that of the rendered text: what the container was made from is what counts."""
    path = cluster.folder / "docker-compose.yml"
    ours = path.read_text()
    devices = cluster.inspect()["HostConfig"]["Devices"]
    path.write_text(re.sub(r".*/dev/null:.*\n", "", ours, count=1))
    cluster.configure()  # and however that ends: a GPU has gone from the container
    assert len(cluster.inspect()["HostConfig"]["Devices"] or []) < len(devices)
    for beside in cluster.folder.glob("docker-compose.yml*"):
        beside.unlink()
    assert cluster.configure().good().steps["start"]["detail"] == "started"
    assert cluster.node() == ("gpu:h100:2", "idle")

    edit(path, 'shm_size: "1g"', 'shm_size: "2g"')
    cluster.configure().good()
    assert cluster.inspect()["HostConfig"]["ShmSize"] == 2 << 30
    cluster.dshpc("config", "accept", "docker-compose.yml", "--yes").good()
    notes = cluster.dshpc("status", "--json").good().report["notes"]
    assert any("newer than the container" in note for note in notes)
    cluster.configure().good()
    assert cluster.inspect()["HostConfig"]["ShmSize"] == 1 << 30
    assert cluster.configure().good().steps["start"]["detail"] == "running already"


@pytest.mark.engines("docker", why="a person types compose there")
def test_a_container_that_somebody_made_with_compose_himself(cluster: Cluster) -> None:
    path = cluster.folder / "docker-compose.yml"
    ours = path.read_text()
    edit(path, 'shm_size: "1g"', 'shm_size: "2g"')
    tool = ["-f", str(path), "-p", cluster.prefix, "up", "-d", "--no-build"]
    done = subprocess.run(["docker-compose", *tool], cwd=cluster.folder, check=False)
    assert done.returncode == 0
    path.write_text(ours)
    cluster.configure().good()
    assert cluster.inspect()["HostConfig"]["ShmSize"] == 1 << 30


def test_a_start_that_failed(cluster: Cluster) -> None:
    cluster.dshpc("down").good()
    cluster.engine.said(
        "volume", "rm", f"{cluster.prefix}-state"
    )  # and with it the last good configuration
    for log in cluster.work.glob("[0-9]*"):  # job IDs begin anew, and a log is appended to
        log.unlink()
    path = cluster.folder / "config/slurm.conf"
    good = path.read_text()
    edit(path, "SelectType=", "SelctType=")
    failed = cluster.dshpc("up")
    assert (failed.code, "in the project folder: dshpc restart" in failed.stderr) == (2, True)
    tried = cluster.dshpc("srun", "hostname")
    assert tried.code == 2
    assert tried.stderr.splitlines() == [
        "dshpc: the cluster did not start; dshpc status says why.",
        "dshpc: when that is fixed, start it again: dshpc restart",
    ]
    path.write_text(good)
    cluster.dshpc("up").good()
    assert cluster.node() == ("gpu:h100:2", "idle")


def test_a_task_prolog_of_ones_own(cluster: Cluster) -> None:
    """It runs beside ours; and one that fails keeps its task from beginning, as Slurm has it."""
    script = cluster.work / "prolog"
    export = "#!/bin/sh\necho export SEEN=$CUDA_VISIBLE_DEVICES\n"
    script.write_text(f"{export}echo print hello\n")
    script.chmod(0o755)
    extra = f"TaskProlog={script}"
    cluster.configure("--simulate", "t4:1+h100:1", "--slurm-conf-extra", extra).good()
    script.write_text(export)
    given = cluster.exec("srun", "--gres=gpu:h100:1", "printenv", "CUDA_VISIBLE_DEVICES", "SEEN")
    assert given.good().stdout.split() == ["1", "1"]
    script.write_text("#!/bin/sh\nexit 3\n")
    assert cluster.exec("srun", "true").code != 0
    job = cluster.submit(script="true\n")
    wait_until(lambda: cluster.job_state(job)[0] == "FAILED", "the job that its TaskProlog ends")
    (task,) = findings(cluster, "DSH-SL-052")
    assert (task["state"], task["evidence"]) == (
        "warn",
        [f"job {job} (exit code 3): TaskProlog failed"],
    )
    script.unlink()
    (missing,) = findings(cluster, "DSH-SL-050")
    assert missing["state"] == "error"
    steps = [fix["command"] for fix in missing["fix"]]
    assert steps[-2:] == ["dshpc config unset slurm_conf_extra", "configure-environment"]
    assert (
        f"{extra} is not there in the container. Each job fails." in cluster.dshpc("status").stdout
    )
    began = cluster.started_at
    refused = cluster.configure("--shm-size", "3g")
    assert (refused.code, f"{extra} is not there" in refused.report["error"]["brief"]) == (2, True)
    assert cluster.started_at == began


def test_a_prolog_of_ones_own_that_fails(cluster: Cluster) -> None:
    """The job is queued again and waits for the node; a start that it keeps from its end names it."""
    script = cluster.work / "before"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    cluster.configure("--simulate", "h100:2", "--slurm-conf-extra", f"Prolog={script}").good()
    script.write_text("#!/bin/sh\nexit 3\n")
    job = cluster.submit(script="true\n")
    again = lambda: "Restarts=1" in cluster.said("scontrol", "show", "job", job)  # noqa: E731
    wait_until(again, "the job that is queued again")
    (drained,) = findings(cluster, "DSH-SL-016")
    assert f"The Prolog {script} ended with exit code 3." in drained["cause"]
    assert not any("release" in (fix["command"] or "") for fix in drained["fix"])
    (waits,) = findings(cluster, "DSH-SL-023")
    assert waits["caused_by"] == "DSH-SL-016"

    failed = cluster.dshpc("restart")
    assert failed.code != 0
    assert (
        f"The Prolog {script} failed, so that Slurm drained the node."
        in cluster.dshpc("status").stdout
    )
    drained, start = findings(cluster, "DSH-SL-016", "DSH-SL-006")
    assert (drained["state"], start["caused_by"]) == ("error", "DSH-SL-016")

    script.write_text("#!/bin/sh\nexit 0\n")
    cluster.dshpc("restart").good()
    # It begins two minutes after Slurm queued it again
    cluster.exec("scontrol", "update", f"JobId={job}", "StartTime=now").good()
    cluster.completed(job)


def findings(cluster: Cluster, *ids: str) -> list[dict[str, Any]]:
    found = {item["id"]: item for item in cluster.dshpc("doctor", "--json").report["findings"]}
    return [found[identity] for identity in ids]


def test_a_slurm_conf_from_before_the_plugin(cluster: Cluster) -> None:
    """With its TaskProlog alone, and with the new line beside it: each task is told its GPUs once.

    Both ways it is the first to go where memory runs out.
    """
    cluster.configure("--simulate", "t4:1+h100:1", "--slurm-conf-extra", "").good()
    path = cluster.folder / "config/slurm.conf"
    ours = path.read_text()
    new = "PlugStackConfig=/usr/local/lib/dshpc/plugstack.conf"
    old = "TaskProlog=/usr/local/lib/dshpc/task-prolog"
    for lines in (old, f"{old}\n{new}"):
        edit(path, new, lines)
        cluster.dshpc("reconfigure").good()
        seen = 'echo "$CUDA_VISIBLE_DEVICES"; cat /proc/self/oom_score_adj'
        shown = cluster.exec("srun", "--gres=gpu:h100:1", "sh", "-c", seen)
        assert shown.good().stdout.split() == ["1", "500"]
        path.write_text(ours)
    cluster.dshpc("reconfigure").good()


def _same(one: Path, other: Path) -> bool:
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return one.readlink() == other.readlink()
    return False


def test_no_daemon_has_an_executable_stack(cluster: Cluster) -> None:
    """As a library that says nothing of the stack would make it."""
    first = Path(f"/proc/{cluster.inspect()['State']['Pid']}/ns/pid")
    inside = [pid for pid in Path("/proc").glob("[0-9]*") if _same(pid / "ns/pid", first)]
    daemons = [pid for pid in inside if (pid / "comm").read_text() in ("slurmctld\n", "slurmd\n")]
    assert len(daemons) == 2
    for pid in daemons:
        maps = (pid / "maps").read_text()
        (stack,) = [line for line in maps.splitlines() if line.endswith("[stack]")]
        assert stack.split()[1] == "rw-p"


@pytest.mark.parametrize(
    ("simulate", "sharing", "asked"),
    [
        (
            "h100:2",
            "shard:4",
            {"shard:h100:1": "0", "shard:NVIDIA:2": "0", "shard:t4:1": "ask for --gres=shard:1"},
        ),
        ("h100:2", "mps", {"mps:h100:50": "0"}),
        ("h100:1+t4:1", "shard:4", {"shard:t4:1": "--gres=gpu:t4:1", "shard:nvidia:1": "0"}),
    ],
    ids=["shards", "mps", "two types"],
)
def test_a_share_with_a_type(
    shared: Cluster, simulate: str, sharing: str, asked: dict[str, str]
) -> None:
    """What is asked for gets the one GPU, or is told what to ask for."""
    shared.configure("--simulate", simulate, "--gpu-sharing", sharing).good()
    seen = "CUDA_VISIBLE_DEVICES"
    for said, wanted in asked.items():
        got = shared.exec("srun", f"--gres={said}", "printenv", seen)
        if wanted != "0":
            assert (got.code != 0, wanted in got.stderr) == (True, True), said
            batch = shared.exec("sbatch", f"--gres={said}", "--wrap", "true")
            assert (batch.code != 0, wanted in batch.stderr) == (True, True), said
            continue
        assert got.good().stdout.strip() == wanted, said
        # Quiet: a step says that it waits for the one before it, where that is slow to leave
        inside = f"printenv {seen}; srun -Q printenv {seen}; srun -Q --gres={said} printenv {seen}"
        job = shared.submit(f"--gres={said}", script=inside)
        shared.completed(job)
        assert shared.output(job).split() == [wanted] * 3, said
