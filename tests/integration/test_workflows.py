"""`dshpc workflow` on a real cluster of made-up GPUs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import (
    Cluster,
    Outcome,
    command,
    environment,
    made,
    wait_until,
)
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")

_PREPARE = """
import json, os
rows = json.load(open(os.environ["PARAMS_FILE"]))["rows"]
json.dump(list(range(rows)), open("rows.json", "w"))
"""
_TRAIN = """
import json, os
rows = json.load(open(json.load(open(os.environ["REQUIRES_FILE"]))["prepare"] + "/rows.json"))
json.dump({"sum": sum(rows), "gpu": os.environ["CUDA_VISIBLE_DEVICES"]}, open("model.json", "w"))
"""
_REPORT = """
import json, os, sys
model = json.load(open(json.load(open(os.environ["REQUIRES_FILE"]))["model"] + "/model.json"))
print(json.dumps([model["sum"], *sys.argv[1:]]))
"""
_PIPE = """
jobs:
  report:
    command: python3
    args: [report.py, 1e-3, "$(id) #SBATCH 'x' ../%j"]
    requires: [{model: COMPLETED}]
    resources: {max_memory: 100, max_cpu: 100}
  data: {method: prepare, parameters: {rows: 5}}
  model:
    method: train
    requires: [data]
    resources: {gpu_count: 1, gpu_memory_mb: 8192}
"""
_LONG = """
jobs:
  first: {command: sleep, args: [300]}
  second: {command: "true", requires: [first]}
"""


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("workflows", engine=engine) as one:
        one.configure("--simulate", "h100:2").good()
        one.work.chmod(0o1777)  # for all users of the machine
        rows = [{"name": "rows", "type": "integer", "required": True}]
        _method(one, "prepare", _PREPARE, parameters=rows)
        _method(one, "train", _TRAIN, requires=["prepare"])
        yield one


@pytest.fixture(autouse=True)
def _nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.empty_queue()


def _method(one: Cluster, name: str, script: str, **more: Any) -> None:
    folder = one.folder / "methods" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "main.py").write_text(script)
    whole = {"name": name, "command": "python3", "script_path": "main.py", **more}
    (folder / "method.json").write_text(json.dumps(whole))


def _file(one: Cluster, name: str, text: str) -> Path:
    folder = one.work / "flows"
    folder.mkdir(exist_ok=True)
    (folder / "report.py").write_text(_REPORT)
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


def _run(one: Cluster, file: Path, *options: str) -> Outcome:
    return one.dshpc("workflow", "run", str(file), *options)


def _actions(outcome: Outcome) -> dict[str, str]:
    return {each["name"]: each["action"] for each in outcome.good().report["jobs"]}


def _status(one: Cluster, name: str) -> dict[str, Any]:
    return one.dshpc("workflow", "status", name, "--json").good().report


def _jobs(one: Cluster, name: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in _status(one, name)["jobs"]}


def _done(one: Cluster, name: str) -> dict[str, dict[str, Any]]:
    wait_until(lambda: bool(_status(one, name)["is_over"]), f"{name} is over")
    return _jobs(one, name)


def _queue(one: Cluster) -> str:
    return one.said("squeue", "-h", "-a", "-t", "PENDING,RUNNING")


def test_results_go_from_job_to_job(cluster: Cluster) -> None:
    done = _run(cluster, _file(cluster, "pipe", _PIPE), "--wait").good()
    assert "the workflow pipe has succeeded" in done.stderr
    jobs = _jobs(cluster, "pipe")
    assert [jobs[name]["words"] for name in ("data", "model", "report")] == ["done"] * 3
    log = Path(jobs["report"]["log"]).read_text()
    assert json.loads(log) == [10, "1e-3", "$(id) #SBATCH 'x' ../%j"]
    assert len(jobs["model"]["gpus"]) == 1


def test_what_has_not_changed_is_not_run_again(cluster: Cluster) -> None:
    file = _file(cluster, "again", _PIPE)
    _run(cluster, file, "--wait").good()
    before = _jobs(cluster, "again")
    said = _run(cluster, file, "--wait").good().stderr
    number = before["data"]["job_id"]
    assert f"data: unchanged since job {number}, not run again" in said
    assert _jobs(cluster, "again")["data"]["reused"]
    # A change takes along what comes behind it, and nothing else
    (cluster.folder / "methods/train/more.txt").write_text(str(time.time()))
    third = _run(cluster, file, "--json")
    assert _actions(third) == {"data": "reused", "model": "submitted", "report": "submitted"}
    after = _done(cluster, "again")
    assert after["data"]["workspace"] == before["data"]["workspace"]
    assert {each["words"] for each in after.values()} == {"done"}
    assert set(_actions(_run(cluster, file, "--json", "--again")).values()) == {"submitted"}
    _done(cluster, "again")


def test_a_workspace_that_is_gone_is_made_again(cluster: Cluster) -> None:
    text = "jobs: {a: {command: 'true'}, b: {command: 'true'}}"
    file = _file(cluster, "gone", text)
    _run(cluster, file, "--wait").good()
    folder = Path(_jobs(cluster, "gone")["a"]["workspace"])
    folder.rename(folder.with_name("moved-away"))
    again = _run(cluster, file, "--json")
    assert _actions(again) == {"a": "submitted", "b": "reused"}
    assert "the workspace of job " in again.report["jobs"][0]["why"]
    _done(cluster, "gone")


def test_after_a_failure_nothing_waits_for_ever(cluster: Cluster) -> None:
    text = """
jobs:
  a: {command: sh, args: [-c, exit 3]}
  b: {command: "true", requires: [a]}
  c: {command: "true", requires: [b]}
  alarm: {command: "true", requires: [{a: FAILED}]}
  tidy: {command: "true", requires: [{b: FINISHED}]}
"""
    done = _run(cluster, _file(cluster, "fails", text), "--wait")
    assert done.code == 1
    jobs = _jobs(cluster, "fails")
    assert jobs["a"]["words"] == "failed: exit code 3"
    assert (jobs["b"]["words"], jobs["b"]["why"]) == ("not run", "a failed: exit code 3")
    assert (jobs["c"]["words"], jobs["alarm"]["words"]) == ("not run", "done")
    assert jobs["tidy"]["words"] == "done"
    assert _queue(cluster) == ""


def test_a_job_for_a_failure_that_does_not_come(cluster: Cluster) -> None:
    text = "jobs: {a: {command: 'true'}, alarm: {command: 'false', requires: [{a: FAILED}]}}"
    file = _file(cluster, "alarm", text)
    _run(cluster, file, "--wait").good()
    assert _jobs(cluster, "alarm")["alarm"]["words"] == "not needed"
    assert _actions(_run(cluster, file, "--json")) == {"a": "reused", "alarm": "none"}


def test_one_that_runs_is_refused_and_cancelled(cluster: Cluster) -> None:
    file = _file(cluster, "long", _LONG)
    _run(cluster, file).good()
    wait_until(lambda: _jobs(cluster, "long")["first"]["words"] == "running", "it runs")
    assert _jobs(cluster, "long")["second"]["why"] == "it waits for first"
    refused = _run(cluster, file)
    assert refused.code == 2
    assert "The workflow long is not over yet." in refused.stderr
    assert "dshpc workflow cancel long" in refused.stderr
    said = cluster.dshpc("workflow", "cancel", str(file)).good().stdout
    assert "first (job " in said
    assert "second (job " in said
    jobs = _done(cluster, "long")
    assert jobs["first"]["words"] == "cancelled"
    assert "over already" in cluster.dshpc("workflow", "cancel", "long").good().stdout


def test_ctrl_c_leaves_it_running(cluster: Cluster) -> None:
    file = _file(cluster, "watched", _LONG)
    child = subprocess.Popen(
        command("dshpc", "workflow", "run", str(file), "--wait"),
        cwd=cluster.folder, env=environment(cluster.env), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert child.stderr is not None
        wait_until(lambda: "first (job" in child.stderr.readline(), "it is watched")  # type: ignore[union-attr]
        os.killpg(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    assert child.returncode == 130
    assert "the workflow watched is no longer watched. It keeps running" in said
    assert "dshpc workflow cancel watched" in said
    assert _jobs(cluster, "watched")["first"]["kind"] in ("queued", "running")


def test_what_can_never_run_is_refused_with_nothing_queued(cluster: Cluster) -> None:
    text = "jobs: {a: {command: 'true'}, b: {command: 'true', resources: {gpu_count: 9}}}"
    refused = _run(cluster, _file(cluster, "large", text))
    assert refused.code == 2
    assert "b: it needs 9 GPUs" in refused.stderr
    assert _queue(cluster) == ""
    wrong = _run(cluster, _file(cluster, "wrong", "jobs: {a: {network: x}}"))
    assert wrong.code == 2
    assert '"network" is not offered here' in wrong.stderr


def test_a_runtime_of_joblets_is_a_note(cluster: Cluster) -> None:
    file = _file(cluster, "joblet", "jobs: {a: {command: 'true', runtime: python-3.11-ml}}")
    note = 'a: runtime: "python-3.11-ml" changes nothing.'
    assert note in cluster.dshpc("workflow", "validate", str(file)).good().stdout
    assert note in _run(cluster, file, "--dry-run").good().stdout
    assert note in _run(cluster, file, "--wait").good().stderr


def test_a_dry_run_submits_nothing(cluster: Cluster) -> None:
    shown = _run(cluster, _file(cluster, "dry", _PIPE), "--dry-run").good().stdout
    assert "--dependency=afterok:<data>" in shown
    assert "--gres=gpu:h100:1" in shown
    assert cluster.dshpc("workflow", "status", "dry").code == 64


def test_inputs_from_elsewhere_are_copied(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("from elsewhere")
    text = (
        f"jobs: {{a: {{command: sh, args: [-c, 'cat $INPUT_FILE'], inputs: [{tmp_path}/in.txt]}}}}"
    )
    file = _file(cluster, "inputs", text)
    _run(cluster, file, "--wait").good()
    assert Path(_jobs(cluster, "inputs")["a"]["log"]).read_text() == "from elsewhere"
    assert _actions(_run(cluster, file, "--json")) == {"a": "reused"}
    assert not list((cluster.work / "jobs").glob("*/.incoming-*"))
    (tmp_path / "in.txt").write_text("something else")
    assert _actions(_run(cluster, file, "--json")) == {"a": "submitted"}
    _done(cluster, "inputs")


@pytest.mark.engines("docker", why="calls of a program in PATH are counted")
def test_forty_jobs_take_one_call(cluster: Cluster, tmp_path: Path) -> None:
    calls, counted = tmp_path / "calls", tmp_path / "docker"
    counted.write_text(f'#!/bin/sh\necho "$1" >>{calls}\nexec {shutil.which("docker")} "$@"\n')
    counted.chmod(0o755)
    called = replace(cluster, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    jobs = {f"n{at}": {"command": "true", "requires": [f"n{at - 1}"] if at else []}
            for at in range(40)}  # fmt: skip
    file = _file(cluster, "chain", json.dumps({"jobs": jobs}))
    assert set(_actions(_run(called, file, "--json")).values()) == {"submitted"}
    assert calls.read_text().split() == ["exec"]
    cluster.dshpc("workflow", "cancel", "chain").good()


def test_of_an_ordinary_user(cluster: Cluster) -> None:
    file = _file(cluster, "users", "jobs: {a: {command: id, args: [-u]}}")
    called = replace(cluster, env={"SUDO_UID": "4242", "SUDO_GID": "4242"})
    _run(called, file, "--wait").good()
    assert Path(_jobs(called, "users")["a"]["log"]).read_text() == "4242\n"
    state = cluster.work / "jobs/4242/.workflows"
    assert (state.stat().st_uid, state.stat().st_mode & 0o777) == (4242, 0o700)
    # Another one's of that name is another one
    assert cluster.dshpc("workflow", "status", "users").code == 64
    assert _actions(_run(cluster, file, "--json")) == {"a": "submitted"}
    assert _actions(_run(called, file, "--json")) == {"a": "reused"}
    _done(cluster, "users")
