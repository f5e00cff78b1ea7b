"""`dshpc method run|check` and `dshpc run` on a real cluster of made-up GPUs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.cluster import (
    Cluster,
    Outcome,
    as_user,
    command,
    environment,
    made,
    wait_until,
)
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")

_SHOW = """
import json, os
names = ("JOB_WORKSPACE", "INPUT_FILE", "INPUT_FILES", "METHOD_DIR", "SLURM_ARRAY_TASK_ID", "ODD")
with open(os.environ["PARAMS_FILE"], "rb") as file:
    params = json.load(file)
with open(os.path.join(os.environ["JOB_WORKSPACE"], "seen.json"), "w") as file:
    json.dump({"params": params, **{name: os.environ.get(name) for name in names}}, file)
"""
ODD = "a'b\"\n#SBATCH --wrap=id\n$(id) `id` ${HOME} ../%j é \\ ;|&"


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    """Its path holds what Slurm's patterns and shells are made of."""
    with made("methods", sub="my %j project's", engine=engine) as one:
        one.configure("--simulate", "h100:2+t4:1").good()
        parameters = [
            {"name": "text", "type": "string"},
            {"name": "file", "type": "file"},
            {"name": "count", "type": "integer"},
        ]
        method(one, "show", _SHOW, parameters=parameters, resources={"env": {"ODD": ODD}})
        yield one


def method(one: Cluster, name: str, script: str, **more: Any) -> None:
    folder = one.folder / "methods" / name
    folder.mkdir(parents=True)
    (folder / "run.py").write_text(script)
    whole = {"name": name, "command": "python3", "script_path": "run.py", **more}
    (folder / "method.json").write_text(json.dumps(whole))


def ended(one: Cluster, job: str) -> None:
    argv = ("squeue", "-h", "-a", "-o", "%F")
    wait_until(lambda: job not in one.said(*argv).split(), f"job {job} ended")


def submitted(outcome: Outcome) -> dict[str, Any]:
    value: dict[str, Any] = outcome.good().report
    assert value["schema"] == "dshpc.job-submitted/1"
    return value


def run_show(one: Cluster, *arguments: str) -> dict[str, Any]:
    """What a run of the method saw."""
    value = submitted(one.dshpc("method", "run", "show", "--json", *arguments))
    ended(one, value["job_id"])
    found = json.loads(Path(value["workspace"], "seen.json").read_text())
    assert isinstance(found, dict)
    return {**found, "workspace": value["workspace"]}


def test_a_method_gets_what_the_contract_says(cluster: Cluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    outside = tmp_path / "in put%j"
    outside.write_text("data")
    inside = cluster.work / "here"
    inside.write_text("data")
    inputs = ("--input", str(outside), "--input", str(inside))
    seen = run_show(cluster, "-p", "count=3", "-p", f"file={outside}", *inputs)
    copy = f"{seen['workspace']}/inputs/in put%j"
    assert seen["JOB_WORKSPACE"] == seen["workspace"]
    assert seen["params"] == {"text": None, "file": copy, "count": 3}
    assert json.loads(seen["INPUT_FILES"]) == [copy, str(inside)]
    assert seen["INPUT_FILE"] == copy
    assert seen["METHOD_DIR"] == str(cluster.folder / "methods/show")
    assert seen["ODD"] == ODD
    assert Path(copy).read_text() == "data"
    assert [path.name for path in (cluster.work / "jobs/0").glob(".incoming*")] == []


_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(_TEXTS, st.sampled_from([ODD, "--wrap=id", "%j%a", "../../etc/passwd", "-p x=1"])))
def test_any_text_arrives_byte_for_byte(cluster: Cluster, text: str) -> None:
    seen = run_show(cluster, "-p", f"text={text}")
    assert seen["params"]["text"] == text


@pytest.mark.parametrize(
    "name", ["a b", "$(touch x)", "#SBATCH --wrap=id\n", "%j", "--help", "é/.."]
)
def test_a_jobs_name_and_words_are_data(cluster: Cluster, name: str) -> None:
    words = [ODD, "--wrap=id", "%j", "", "-n 2"]
    argv = ["python3", "-c", "import json, sys; json.dump(sys.argv[1:], open('seen', 'w'))", *words]
    value = submitted(cluster.dshpc("run", "--json", f"--name={name}", "--", *argv))
    ended(cluster, value["job_id"])
    assert json.loads(Path(value["workspace"], "seen").read_text()) == words
    assert Path(value["workspace"]).parent == cluster.work / "jobs/0"
    assert re.fullmatch(r"[A-Za-z0-9._-]+", Path(value["workspace"]).name)


def test_an_array_is_one_call_and_each_task_has_its_own_set(
    cluster: Cluster, tmp_path: Path
) -> None:
    table = tmp_path / "sets.json"
    table.write_text(json.dumps([{"text": ODD, "count": 0}, {"text": "%a", "count": 1}]))
    value = submitted(cluster.dshpc("method", "run", "show", "--array", str(table), "--json"))
    assert "--array=0-1" in value["sbatch"]
    ended(cluster, value["job_id"])
    folder = Path(value["workspace"])
    seen = [json.loads((folder / f"task-{task}/seen.json").read_text()) for task in (0, 1)]
    assert [each["params"]["text"] for each in seen] == [ODD, "%a"]
    assert [each["SLURM_ARRAY_TASK_ID"] for each in seen] == ["0", "1"]
    assert (folder / "output-0.log").exists()


def test_a_thousand_sets_are_one_call(cluster: Cluster, tmp_path: Path) -> None:
    table = tmp_path / "sets.json"
    table.write_text(json.dumps([{"count": number} for number in range(1000)]))
    began = time.monotonic()
    value = submitted(cluster.dshpc("method", "run", "show", "--array", str(table), "--json"))
    took = time.monotonic() - began
    cluster.exec("scancel", value["job_id"]).good()
    assert "--array=0-999" in value["sbatch"]
    assert took < 60  # a call for each would take minutes; how long: benchmarks/method_run.py
    ended(cluster, value["job_id"])


def test_a_dry_run_shows_the_call_and_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("data")
    before = sorted((cluster.work).rglob("*"))
    dry = ("method", "run", "show", "--dry-run", "--input", str(tmp_path / "in"))
    told = cluster.dshpc(*dry).good()
    call = shlex.split(told.stdout)
    assert call[:2] == ["sbatch", "--parsable"]
    assert any(word.startswith(f"--chdir={cluster.work}/jobs/0/show-") for word in call)
    assert len(told.stdout.splitlines()) == 1
    assert cluster.dshpc(*dry, "--json").good().report["job_id"] is None
    assert sorted((cluster.work).rglob("*")) == before


@pytest.mark.parametrize(
    ("options", "gres"),
    [
        (("--gpus", "1"), "gpu:t4:1"),
        (("--gpus", "1", "--gpu-memory", "40GB"), "gpu:h100:1"),
        (("--gpu-type", "nvidia", "--gpus", "2"), "gpu:h100:2"),
    ],
)
def test_gpus_are_chosen_by_what_there_is(
    cluster: Cluster, options: tuple[str, ...], gres: str
) -> None:
    value = submitted(cluster.dshpc("run", "--json", *options, "--", "true"))
    assert f"--gres={gres}" in value["sbatch"]
    ended(cluster, value["job_id"])


def test_what_can_never_run_is_refused_and_not_queued(cluster: Cluster) -> None:
    for options, words in (
        (
            ("--gpus", "4"),
            "it needs 4 GPUs, this cluster has 2x h100 (80 GB) and 1x t4",
        ),
        (("--cpus", "4096"), "it needs 4096 CPUs"),
        (("--memory", "900000G"), "of memory, this cluster has"),
        (("--partition", "none"), "there is no partition none"),
    ):
        told = cluster.dshpc("run", *options, "--", "true")
        assert told.code == 2, told
        assert words in told.stderr
    assert cluster.said("squeue", "-h") == ""


def test_the_check_says_where_and_when_and_why_not(cluster: Cluster) -> None:
    method(cluster, "large", "", resources={"gpus": 2, "gpu_memory_mb": 40960})
    now = cluster.dshpc("method", "check", "large").good().stdout
    assert "on 2 GPUs h100 (80 GB)" in now
    assert "free now" in now
    hold = ("run", "--json", "--gpu-type", "h100", "--time", "10", "--", "sleep", "600")
    holds = submitted(cluster.dshpc(*hold))["job_id"]
    wait_until(lambda: cluster.job_state(holds)[0] == "RUNNING", "the holder runs")
    later = cluster.dshpc("method", "check", "large").good().stdout
    assert re.search(r"later: 1x h100 \(80 GB\) free and 1 busy until (\w+ )?\d\d:\d\d", later)
    no = cluster.dshpc("method", "check", "large", "--gpus", "3", "--json")
    assert (no.code, no.report["can_run"]) == (2, False)
    assert "1x h100 (80 GB) free and 1 busy until" in no.report["whys"][0]
    cluster.exec("scancel", holds).good()
    ended(cluster, holds)


def test_a_job_that_shares_the_node_with_nobody(cluster: Cluster) -> None:
    """Also where there are more GPUs than CPUs, and Slurm lets jobs share CPUs."""
    method(
        cluster, "alone", "import time; time.sleep(600)", resources={"exclusive": True, "gpus": 1}
    )
    alone = submitted(cluster.dshpc("method", "run", "alone", "--json"))
    assert "has the node to itself" in alone["notes"][0]
    wait_until(lambda: cluster.job_state(alone["job_id"])[0] == "RUNNING", "it runs")
    beside = submitted(cluster.dshpc("run", "--json", "--memory", "10M", "--", "true"))["job_id"]
    wait_until(lambda: cluster.job_state(beside) == ("PENDING", "Resources"), "the other waits")
    cluster.exec("scancel", alone["job_id"]).good()
    ended(cluster, beside)


def test_wait_streams_the_log_and_ends_with_the_jobs_exit_code(cluster: Cluster) -> None:
    script = "echo out; echo err >&2; exit 7"
    told = cluster.dshpc("run", "--wait", "--", "sh", "-c", script)
    assert told.code == 7
    assert "out" in told.stdout
    assert "is submitted" in told.stderr


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_a_signal_ends_the_watching_and_not_the_job(
    cluster: Cluster, number: int, name: str
) -> None:
    argv = command("dshpc", "run", "--wait", "--", "sh", "-c", "echo begun; sleep 600")
    with subprocess.Popen(
        argv, cwd=cluster.folder, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert "begun" in child.stdout.readline()
        os.kill(child.pid, number)
        _, said = child.communicate(timeout=60)
    (job,) = re.findall(r"Job (\d+) is submitted", said)
    assert child.returncode == 128 + number
    assert f"{name}: job {job} is no longer watched. It keeps running" in said
    assert f"job cancel {job}" in said
    assert cluster.job_state(job)[0] == "RUNNING"
    cluster.exec("scancel", job).good()
    ended(cluster, job)


def test_ctrl_c_at_any_moment_leaves_no_job_that_nobody_knows(cluster: Cluster) -> None:
    def queued() -> set[str]:
        return set(cluster.said("squeue", "-h", "-o", "%i").split())

    before, told = queued(), ""
    for delay_s in (0.15, 0.25, 0.35, 0.45, 0.6, 0.8):
        with subprocess.Popen(
            command("dshpc", "run", "--", "sleep", "600"),
            cwd=cluster.folder, env=environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        ) as child:  # fmt: skip
            time.sleep(delay_s)
            os.kill(child.pid, signal.SIGINT)
            told += child.communicate(timeout=60)[0]
    known = set(re.findall(r"\bjob (\d+)", told, re.IGNORECASE))
    print(told)
    for job in (queued() - before) & known:
        cluster.exec("scancel", job).good()
    # One that Slurm has taken later all the same ends by itself as it begins: it runs nothing
    wait_until(lambda: queued() <= before, "no job is left")


def test_variables_of_the_caller_change_nothing(cluster: Cluster) -> None:
    env = {"DSHPC_PASS_ENV": "SBATCH_*", "SBATCH_JOB_NAME": "astray", "SBATCH_HOLD": "1"}
    own = replace(cluster, env=env)
    value = submitted(own.dshpc("run", "--json", "--", "true"))
    ended(cluster, value["job_id"])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")
def test_a_user_runs_a_method_of_his_own(cluster: Cluster) -> None:
    """In somebody else's cluster, from where jobs see nothing."""
    home = Path(tempfile.mkdtemp(prefix="dshpc-test-home-"))
    try:
        os.chown(home, 4711, 4711)
        made = as_user(4711, "dshpc", "method", "init", "./mine/greet", cwd=home).good()
        assert "dshpc method run ./mine/greet" in made.stdout
        (home / "mine" / "greet" / "main.py").write_text(
            "import os, part; print(part.WORD, os.getuid())\n"
        )
        (home / "mine" / "greet" / "part.py").write_text("WORD = 'hello from'\n")
        told = as_user(
            4711, "dshpc", "method", "run", f"{home}/mine/greet", "--json",
            cwd=cluster.folder,
        )  # fmt: skip
    finally:
        shutil.rmtree(home)
    value = submitted(told)
    ended(cluster, value["job_id"])
    assert (Path(value["workspace"]) / "output.log").read_text() == "hello from 4711\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")
def test_another_users_job_is_his(cluster: Cluster) -> None:
    told = as_user(4711, "dshpc", "run", "--json", "--", "id", "-u", cwd=cluster.folder)
    value = submitted(told)
    ended(cluster, value["job_id"])
    folder = Path(value["workspace"])
    assert (folder / "output.log").read_text() == "4711\n"
    assert {path.stat().st_uid for path in (folder, *folder.rglob("*"))} == {4711}
    own = {path.name: path.stat().st_mode & 0o077 for path in (folder / ".job").iterdir()}
    assert (own["request.json"], own["params.json"]) == (0, 0)
    other = as_user(4712, "dshpc", "job", "show", value["job_id"], "--json", cwd=cluster.folder)
    assert other.good().report["request"] is None
    assert other.report["jobs"][0]["workspace"] is None
    modes = {path.name: path.stat().st_mode & 0o077 for path in (folder.parent, *folder.iterdir())}
    assert set(modes.values()) == {0}, modes
    assert as_user(4712, "dshpc", "job", "logs", value["job_id"], cwd=cluster.folder).code == 2
