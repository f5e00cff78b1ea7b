"""From the launcher to jobs that run: the whole path, and what a later run makes of changes."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import (
    FILES,
    STEPS,
    Cluster,
    as_user,
    command,
    docker,
    made,
    run,
    tree,
    wait_until,
)

pytestmark = pytest.mark.engines("docker", why="the sample on Docker: the main path")

GPU_REQUESTS = (
    "--gres=gpu:1",
    "--gres=gpu:nvidia:1",
    "--gres=gpu:h100:1",
    "--gres=gpu:nvidia_h100_80gb_hbm3:1",
    "--gpus=nvidia:1",
)
SEEN = "CUDA_VISIBLE_DEVICES"
UID = 42_424  # nobody's


# --- the first run


def test_first_run_ends_with_the_object_of_the_contract(standard: Cluster) -> None:
    assert standard.first is not None
    report = standard.first.report
    assert report["schema"] == "dshpc.configure/1"
    assert report["exit_code"] == 0
    assert [item["name"] for item in report["steps"]] == list(STEPS)
    states = {item["name"]: item["state"] for item in report["steps"]}
    assert states == {**dict.fromkeys(STEPS, "ok"), "passthrough": "skipped"}
    assert all(item["ms"] >= 0 and item["detail"] for item in report["steps"])
    assert standard.first.actions == dict.fromkeys(FILES, "created")
    node = {"name": standard.prefix, "gres": "gpu:h100:2", "state": "idle"}
    assert report["cluster"] == {"ready": True, "nodes": [node]}
    assert "SIMULATED" in standard.first.stderr


def test_files_are_labelled_private_where_need_be_and_in_the_manifest(standard: Cluster) -> None:
    assert (standard.folder / ".env").stat().st_mode & 0o777 == 0o600
    texts = standard.texts()
    for name in ("config/slurm.conf", "config/gres.conf", "docker-compose.yml"):
        assert "SIMULATED" in "".join((texts[name] or "").splitlines(keepends=True)[:3]), name
    assert "\nGresTypes=gpu\n" in (texts["config/slurm.conf"] or "")
    manifest = json.loads((standard.folder / "config/manifest.json").read_text())
    for name, digest in manifest["files"].items():
        content = (standard.folder / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name
    assert set(manifest["files"]) == set(FILES)


def test_container_has_few_rights_no_port_and_no_secret_to_read(standard: Cluster) -> None:
    found = standard.inspect()
    host = found["HostConfig"]
    assert host["Privileged"] is False
    assert host["CapDrop"] == ["ALL"]
    six = {"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"}
    assert {name.removeprefix("CAP_") for name in host["CapAdd"]} == six
    assert [text for text in host["SecurityOpt"] if text.startswith("no-new-privileges")]
    assert not host["PortBindings"]
    assert not found["Config"].get("ExposedPorts")
    assert host["PidMode"] == ""
    mounts = {item["Destination"]: item for item in found["Mounts"]}
    assert mounts["/config"]["RW"] is False
    assert mounts[str(standard.work)]["Source"] == str(standard.work)
    key = standard.said("sh", "-c", "base64 -w0 $(find /var/lib/dshpc/key -type f | head -1)")
    assert len(key) > 100
    assert key not in json.dumps(found) + docker("image", "inspect", found["Image"])
    owner = standard.said("sh", "-c", "stat -c '%a %U' $(find /var/lib/dshpc/key -type f)")
    assert owner == "600 slurm"


def test_image_holds_no_key_and_says_what_it_was_built_for(standard: Cluster) -> None:
    image = standard.inspect()["Image"]
    names = r"-name '*.key' -o -name 'slurm.jwks'"
    look = f"find / -xdev -type f \\( {names} \\) -size +0; command -v python3; command -v python"
    said = docker("run", "--rm", "--entrypoint", "sh", image, "-c", look)
    assert said.split() == ["/usr/bin/python3", "/usr/bin/python"]
    labels = json.loads(docker("image", "inspect", image))[0]["Config"]["Labels"]
    assert "nvidia" in labels.values()
    assert labels["org.dshpc.build"]


# --- jobs


@pytest.mark.parametrize("request_gpu", GPU_REQUESTS)
def test_every_name_of_the_gpu_works_in_srun(standard: Cluster, request_gpu: str) -> None:
    assert standard.said("srun", request_gpu, "printenv", SEEN) == "0"


def test_every_name_of_the_gpu_works_in_sbatch_and_in_srun_inside_it(standard: Cluster) -> None:
    jobs = {}
    for text in GPU_REQUESTS:
        inside = f"printenv {SEEN}; srun {text} printenv {SEEN}"
        # one after the other, so that each is given the first
        jobs[text] = standard.submit("--dependency=singleton", text, script=inside)
    for text, job in jobs.items():
        standard.completed(job)
        assert standard.output(job).split() == ["0", "0"], text


def test_two_jobs_share_the_gpus_and_a_third_waits(standard: Cluster) -> None:
    go = standard.work / "go"
    script = f"echo ${SEEN}; until [ -e {go} ]; do sleep 0.1; done"
    jobs = [standard.submit("--gres=gpu:1", "--mem=64", script=script) for _ in range(3)]
    try:
        wait_until(
            lambda: all(standard.output(job).strip() for job in jobs[:2]), "two jobs have begun"
        )
        assert sorted(standard.output(job).strip() for job in jobs[:2]) == ["0", "1"]
        wait_until(lambda: standard.job_state(jobs[2]) == ("PENDING", "Resources"), "third waits")
        assert standard.output(jobs[2]) == ""
    finally:
        go.touch()
    for job in jobs:  # each has to see the file
        standard.completed(job)
    assert standard.output(jobs[2]).strip() in ("0", "1")
    go.unlink()


def test_sinfo_and_health(standard: Cluster) -> None:
    assert standard.said("sinfo", "-h", "-o", "%n %G").startswith(f"{standard.prefix} gpu:h100:2")
    wait_until(lambda: standard.inspect()["State"]["Health"]["Status"] == "healthy", "healthy")


def test_python_of_both_names_and_a_script_of_the_work_folder(standard: Cluster) -> None:
    (standard.work / "train.py").write_text(
        f"import os, sys\nprint(os.environ['{SEEN}'], os.getcwd(), sys.argv[1])\n"
    )
    for python in ("python", "python3"):
        argv = ("srun", "--gres=gpu:1", python, "train.py", "two words")
        outcome = standard.dshpc(*argv, cwd=standard.work).good()
        assert outcome.stdout == f"0 {standard.work} two words\n"
    failed = standard.dshpc("srun", "python", "-c", "raise SystemExit(7)", cwd=standard.work)
    assert failed.code == 7


def test_what_an_ordinary_user_makes_is_theirs(standard: Cluster) -> None:
    own = standard.work / "own"
    own.mkdir(exist_ok=True)
    os.chown(own, UID, UID)
    out = as_user(UID, "dshpc", "srun", "--gres=gpu:1", "sh", "-c", "id -u; touch made", cwd=own)
    assert (out.good().stdout, (own / "made").stat().st_uid) == (f"{UID}\n", UID)
    script = "id -u > batch; cd; pwd"
    as_user(UID, "dshpc", "sbatch", "--wait", "--wrap", script, cwd=own).good()
    status = (own / "batch").stat()
    assert ((own / "batch").read_text(), status.st_uid, status.st_gid) == (f"{UID}\n", UID, UID)
    refused = as_user(UID, "dshpc", "scontrol", "shutdown", cwd=own)
    assert refused.code != 0
    assert standard.said("scontrol", "ping").count("UP") == 1


def test_user_of_a_domain_runs_jobs(standard: Cluster) -> None:
    name = r"DOM\user"
    convention = ("/usr/local/lib/dshpc/as-user", "token-1", "42425", "42425", name, "--")
    assert standard.said(*convention, "srun", "sh", "-c", "id -un; id -u").split() == [
        name,
        "42425",
    ]
    job = standard.said(*convention, "sbatch", "--parsable", "--hold", "-D", "/tmp", "--wrap", "id")
    assert standard.said("squeue", "-h", "-j", job, "-o", "%u") == name
    standard.said("scancel", job)


def test_queue_and_users_outlive_the_container(standard: Cluster) -> None:
    own = standard.work / "queued"
    own.mkdir(exist_ok=True)
    os.chown(own, UID + 2, UID + 2)
    argv = ("sbatch", "--parsable", "--hold", "--gres=gpu:nvidia:1", "-o", "out")
    queued = as_user(UID + 2, "dshpc", *argv, "--wrap", f"id -u; printenv {SEEN}", cwd=own)
    job = queued.good().stdout.strip()

    docker("restart", standard.container)
    standard.said("dshpc-node", "wait", "--timeout", "100")
    assert standard.job_state(job) == ("PENDING", "JobHeldUser")

    before = standard.inspect()["Id"]
    standard.dshpc("down").good()
    assert not standard.exists()
    standard.dshpc("up").good()
    assert standard.inspect()["Id"] != before
    assert standard.job_state(job) == ("PENDING", "JobHeldUser")
    standard.said("scontrol", "release", job)
    standard.completed(job)
    assert (own / "out").read_text().split() == [str(UID + 2), "0"]
    assert (own / "out").stat().st_uid == UID + 2


# --- runs that change nothing


def test_second_run_changes_nothing_and_needs_no_flag(standard: Cluster) -> None:
    before, files = standard.started_at, tree(standard.folder / "config")
    own = [standard.folder / ".dshpc/remembered.json", standard.folder / ".dshpc/runtime.json"]
    stamps = [path.stat().st_mtime_ns for path in own]
    again = run(
        command("dshpc", "configure", "--yes", "--json"), cwd=standard.work, timeout_s=120
    ).good()
    assert again.actions == dict.fromkeys(FILES, "unchanged")
    assert (again.steps["build"]["detail"] or "").endswith("here already")
    assert again.steps["start"]["detail"] == "running already"
    assert again.report["cluster"]["ready"] is True
    assert standard.started_at == before
    assert tree(standard.folder / "config") == files
    assert [path.stat().st_mtime_ns for path in own] == stamps


def test_dry_run_changes_nothing_at_all(standard: Cluster, tmp_path: Path) -> None:
    before, files = standard.started_at, tree(standard.folder)
    images = docker("images", "-aq", "--no-trunc", standard.container)
    said = standard.configure("--dry-run", "--partition", "other", "--simulate", "h100:1").good()
    assert said.actions == {
        **dict.fromkeys(FILES, "unchanged"),
        **dict.fromkeys(FILES[:2], "would-update"),
        "docker-compose.yml": "would-update",
    }
    assert {said.steps[name]["state"] for name in ("build", "start", "verify")} == {"skipped"}
    assert tree(standard.folder) == files
    assert docker("images", "-aq", "--no-trunc", standard.container) == images
    assert standard.started_at == before

    nowhere = Cluster(f"{standard.prefix}-dry", tmp_path / "not" / "there")
    dry = nowhere.configure("--dry-run", "--simulate", "h100:2").good()
    assert dry.actions == dict.fromkeys(FILES, "would-create")
    assert dry.report["cluster"] == {"ready": False, "nodes": []}
    assert list(tmp_path.iterdir()) == []


def test_diff_shows_what_would_change(standard: Cluster) -> None:
    said = standard.configure("--diff", "--partition", "other").good()
    assert said.actions["config/slurm.conf"] == "would-update"
    assert "-PartitionName=debug " in said.stderr
    assert "+PartitionName=other " in said.stderr
    nothing = standard.configure("--dry-run", "--diff").good()
    assert "PartitionName" not in nothing.stderr


# --- runs that change something


@pytest.fixture(scope="module")
def changing(standard: Cluster) -> Iterator[Cluster]:
    """A cluster that each test finds as it likes and leaves as it likes."""
    with made("changing") as cluster:
        yield cluster


@pytest.fixture
def plain(changing: Cluster) -> Cluster:
    """The same with two made-up H100 and all files ours."""
    for path in (changing.folder / "config").glob("*"):
        path.unlink()
    (changing.folder / ".dshpc/remembered.json").unlink(missing_ok=True)
    changing.configure("--simulate", "h100:2").good()
    assert changing.node() == ("gpu:h100:2", "idle")
    return changing


def rename_partition(text: str, name: str) -> str:
    new = re.sub(r"PartitionName=\S+", f"PartitionName={name}", text)
    assert new != text
    return new


def test_marked_and_edited_files_are_kept_and_used_and_deleted_ones_come_back(
    plain: Cluster,
) -> None:
    path = plain.folder / "config/slurm.conf"
    beside = path.with_name("slurm.conf.dshpc-new")
    ours = path.read_text()

    marked = "# USER_CUSTOMIZED=true\n" + rename_partition(ours, "mine")
    path.write_text(marked)
    assert plain.configure().good().actions["config/slurm.conf"] == "kept-custom"
    assert (path.read_text(), beside.exists(), plain.partition) == (marked, False, "mine")
    assert plain.said("srun", "--gres=gpu:nvidia:1", "printenv", SEEN) == "0"

    edited = rename_partition(ours, "byhand")
    path.write_text(edited)
    shown = plain.configure("--diff").good()
    assert "-PartitionName=byhand " in shown.stderr
    assert not beside.exists(), "it only shows"
    kept = plain.configure().good()
    assert kept.actions["config/slurm.conf"] == "kept-edited"
    assert (path.read_text(), beside.read_text(), plain.partition) == (edited, ours, "byhand")

    before = plain.started_at
    again = plain.configure().good()
    assert again.actions["config/slurm.conf"] == "kept-edited"
    assert (again.steps["start"]["detail"], plain.started_at) == ("running already", before)

    path.unlink()
    (plain.folder / "config/gres.conf").unlink()
    back = plain.configure().good()
    assert back.actions == {
        **dict.fromkeys(FILES, "unchanged"),
        "config/slurm.conf": "created",
        "config/gres.conf": "created",
    }
    assert (path.read_text(), plain.partition) == (ours, "debug")


def test_whole_config_folder_deleted_comes_back(plain: Cluster) -> None:
    before = plain.texts()
    for path in (plain.folder / "config").glob("*"):
        path.unlink()
    (plain.folder / "config").rmdir()
    plain.configure().good()
    assert plain.texts() == before
    plain.said("srun", "--gres=gpu:h100:2", "true")


def test_fewer_gpus_then_more_and_none(plain: Cluster) -> None:
    fewer = plain.configure("--simulate", "h100:1").good()
    assert fewer.report["cluster"]["nodes"][0]["gres"] == "gpu:h100:1"
    assert plain.node() == ("gpu:h100:1", "idle")
    # what the flag chose is remembered: a container anew, and a run without flags, keep it
    assert plain.configure().good().actions == dict.fromkeys(FILES, "unchanged")
    plain.dshpc("restart").good()
    assert plain.node() == ("gpu:h100:1", "idle")
    assert plain.said("srun", "--gres=gpu:1", "printenv", SEEN) == "0"

    other = plain.configure("--simulate", "t4:3").good()
    assert other.report["cluster"]["nodes"][0] == {
        "name": plain.prefix, "gres": "gpu:t4:3", "state": "idle",
    }  # fmt: skip

    none = plain.configure("--gpu", "none").good()
    assert none.report["cluster"]["nodes"][0]["gres"] == ""
    assert plain.node()[1] == "idle"
    plain.said("srun", "true")
    assert "\nGresTypes=gpu\n" in (plain.texts()["config/slurm.conf"] or "")


def test_chosen_devices_alone_are_used(plain: Cluster) -> None:
    one = plain.configure("--devices", "1").good()
    assert one.report["cluster"]["nodes"][0]["gres"] == "gpu:h100:1"
    assert plain.said("srun", "--gres=gpu:1", "printenv", SEEN) in ("0", "1")
    assert plain.exec("srun", "--gres=gpu:2", "true").code != 0
    unknown = plain.configure("--devices", "5")
    assert unknown.code == 64
    assert "5" in unknown.report["error"]["brief"]


def test_without_start_and_without_build(fresh: Cluster) -> None:
    # no image yet: there is nothing to use
    missing = fresh.configure("--no-build", "--simulate", "h100:2")
    assert missing.code == 2
    assert "--no-build" in missing.report["error"]["brief"]
    assert not fresh.exists()

    waiting = fresh.configure("--no-start", "--simulate", "h100:2").good()
    states = {name: waiting.steps[name]["state"] for name in ("build", "start", "verify")}
    assert states == {"build": "ok", "start": "skipped", "verify": "skipped"}
    assert not fresh.exists()

    started = fresh.configure("--no-build").good()
    assert started.steps["build"]["state"] == "skipped"
    assert started.report["cluster"]["ready"] is True
    assert fresh.said("srun", "--gres=gpu:1", "printenv", SEEN) == "0"


# --- settings


def shown(cluster: Cluster, *arguments: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    argv = command("dshpc", "config", "show", "--json", "--dir", str(cluster.folder), *arguments)
    settings = run(argv, env=env).good().report["settings"]
    assert isinstance(settings, dict)
    return settings


def test_where_each_setting_comes_from(tmp_path: Path) -> None:
    cluster = Cluster("dshpc-test-settings", tmp_path / "project")
    cluster.folder.mkdir()
    assert shown(cluster)["partition"] == {
        "value": "debug",
        "origin": "default",
        "where": "default",
        "kept_out_by": [],
    }

    (cluster.folder / "dshpc.yaml").write_text("# mine\npartition: file\nshm_size: 2g\n")
    assert shown(cluster)["partition"] == {
        "value": "file", "origin": "file", "where": "dshpc.yaml:2:1", "kept_out_by": [],
    }  # fmt: skip
    env = {"DSHPC_PARTITION": "environment"}
    assert shown(cluster, env=env)["partition"]["value"] == "environment"
    assert shown(cluster, env=env)["partition"]["origin"] == "environment"
    assert shown(cluster, env=env)["shm_size"]["value"] == "2g"

    other = tmp_path / "other.yaml"
    other.write_text("partition: other\n")
    assert shown(cluster, "--settings", str(other))["partition"]["value"] == "other"

    dry = ("--dry-run", "--diff", "--simulate", "h100:2", "--settings", str(other))
    assert "+PartitionName=other " in cluster.configure(*dry).good().stderr
    flagged = cluster.configure(*dry, "--partition", "flag", env=env).good()
    assert "+PartitionName=flag " in flagged.stderr
    assert shown(cluster)["partition"]["value"] == "file"  # a dry run remembers nothing


def test_what_a_flag_chose_is_remembered_until_it_is_unset(plain: Cluster) -> None:
    plain.configure("--partition", "flagged", "--no-start").good()
    found = shown(plain)
    assert (found["partition"]["value"], found["partition"]["origin"]) == ("flagged", "remembered")
    assert found["simulate"]["value"] == "h100:2"
    dshpc = plain.dshpc("config", "show").good()
    assert "flagged" in dshpc.stdout
    plain.dshpc("config", "unset", "partition").good()
    assert shown(plain)["partition"]["origin"] == "default"
    refused = plain.dshpc("config", "unset", "partition")
    assert refused.code == 64
    back = plain.configure().good()
    assert back.actions["config/slurm.conf"] == "updated"
    assert plain.partition == "debug"
    assert plain.dshpc("sinfo", "-h", "-o", "%P").good().stdout == "debug*\n"
