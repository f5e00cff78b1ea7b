"""What becomes of jobs on a real cluster: the launcher, `dshpc job`, following a job to its end."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.workspace import LAUNCHER
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

UUIDS = "/run/dshpc/gpu-places"
# It ends a second after it was told: by then its launcher was told, and has looked who else was
_COUNTS = """
import signal, sys, time
def told(*_):
    print("told to stop", flush=True)
    time.sleep(1)
    sys.exit(9)
signal.signal(signal.SIGTERM, told)
print("begun", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("jobs", engine=engine) as cluster:
        cluster.configure("--simulate", "h100:2+t4:1").good()
        yield cluster


@pytest.fixture(autouse=True)
def _nothing_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.empty_queue()


@dataclass(frozen=True)
class Job:
    id: str
    folder: Path

    @property
    def log(self) -> str:
        return (self.folder / "output.log").read_text()

    def result(self, name: str = "result.json") -> dict[str, Any]:
        value = json.loads((self.folder / ".job" / name).read_text())
        assert isinstance(value, dict)
        return value

    def has_result(self, name: str = "result.json") -> bool:
        return (self.folder / ".job" / name).exists()


def launch(cluster: Cluster, *argv: str, options: tuple[str, ...] = (), **changes: Any) -> Job:
    """A job as a submission leaves it for the launcher."""
    folder = cluster.work / "jobs/0" / f"job-{time.time_ns()}"
    (folder / ".job").mkdir(parents=True)
    asked = Request("command", "test", argv, str(cluster.work), **changes)
    (folder / ".job" / "request.json").write_text(json.dumps(asked.to_json()))
    name = "output-%a.log" if asked.is_array else "output.log"
    own = ("--open-mode=append", f"--chdir={folder}", f"--output={folder}/{name}")
    argv = ("sbatch", "--parsable", *own, *options)
    number = cluster.exec(*argv, given=f"#!{LAUNCHER}\n").good().stdout.strip()
    told = {"schema": "dshpc.job/1", "job_id": int(number), "sbatch": list(argv)}
    (folder / ".job" / "job.json").write_text(json.dumps(told))
    return Job(number, folder)


def follow(cluster: Cluster, job: Job | str) -> Outcome:
    number = job if isinstance(job, str) else job.id
    return cluster.dshpc("job", "logs", number, "-f")


@contextlib.contextmanager
def started(cluster: Cluster, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command line under way, with nothing of it left afterwards."""
    with subprocess.Popen(
        command("dshpc", *words), cwd=cluster.folder, env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def told_line(child: subprocess.Popen[str]) -> str:
    """The next line of what it prints: then it listens to signals, too."""
    assert child.stdout is not None
    return child.stdout.readline()


def shown(cluster: Cluster, number: str) -> dict[str, Any]:
    (one,) = cluster.dshpc("job", "show", number, "--json").good().report["jobs"]
    assert isinstance(one, dict)
    return one


def test_a_job_has_its_variables_and_its_code(cluster: Cluster) -> None:
    script = (
        'printf "%s\\n" "$NVIDIA_VISIBLE_DEVICES" "$CUDA_VISIBLE_DEVICES" "$1"; '
        'cat "$PARAMS_FILE"; exit 3'
    )
    odd = "$(touch x); `y` \"'\n#SBATCH --gres=gpu:9"
    job = launch(
        cluster,
        "sh",
        "-c",
        script,
        "sh",
        odd,
        options=("--gres=gpu:t4:1",),
        parameters=({"a": odd},),
    )
    followed = follow(cluster, job)
    assert followed.code == 3
    assert followed.stdout == job.log
    uuid, number, *rest = job.log.split("\n")
    places = cluster.said("cat", UUIDS)
    assert f"nvidia {number} {uuid}" in places
    assert "\n".join(rest).startswith(odd)
    assert json.loads(job.log.split(odd)[1]) == {"a": odd}
    result = job.result()
    assert (result["exit_code"], result["signal"], result["out_of_memory"]) == (3, None, None)
    assert result["gpus"]["NVIDIA_VISIBLE_DEVICES"] == uuid
    assert result["max_rss_mib"] > 0
    one = shown(cluster, job.id)
    assert (one["state"], one["exit_code"], one["workspace"]) == ("FAILED", 3, str(job.folder))
    assert [(gpu["index"], gpu["uuid"]) for gpu in one["gpus"]] == [(2, uuid)]


def test_a_job_without_a_gpu_sees_none(cluster: Cluster) -> None:
    job = launch(cluster, "sh", "-c", 'echo "$NVIDIA_VISIBLE_DEVICES,$CUDA_VISIBLE_DEVICES,"')
    assert follow(cluster, job).good().stdout == "void,,\n"
    bound = cluster.said("srun", "--gres=gpu:h100:2", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
    assert len(bound.split(",")) == 2
    assert all(
        f"nvidia {n} {uuid}" in cluster.said("cat", UUIDS)
        for n, uuid in enumerate(bound.split(","))
    )


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("no-such-program",), 127, "no-such-program: there is no such command"),
        (("/etc/passwd",), 126, "/etc/passwd cannot be started"),
        (("/etc",), 126, "/etc cannot be started"),
    ],
)
def test_what_cannot_be_started(
    cluster: Cluster, argv: tuple[str, ...], code: int, words: str
) -> None:
    job = launch(cluster, *argv)
    assert follow(cluster, job).code == code
    assert words in job.log
    assert job.result()["exit_code"] == code


def test_a_cancelled_job_is_told_and_writes_its_result(cluster: Cluster) -> None:
    job = launch(cluster, "python3", "-c", _COUNTS)
    wait_until(lambda: (job.folder / "output.log").exists() and "begun" in job.log, "it runs")
    said = cluster.dshpc("job", "cancel", job.id, "99999", "--json")
    assert said.code == 2
    assert [one["result"] for one in said.report["jobs"]] == ["cancelled", "there is no such job"]
    wait_until(job.has_result, "the result is there")
    assert "told to stop" in job.log
    assert (job.result()["exit_code"], job.result()["told_to_stop"]) == (9, "SIGTERM")
    followed = follow(cluster, job)
    assert followed.code == 9
    assert f"job {job.id}: cancelled" in followed.stderr
    again = cluster.dshpc("job", "cancel", job.id).good()
    assert again.stdout == f"Job {job.id} has ended already: cancelled.\n"


def test_one_that_only_the_launcher_hears_is_told_too(cluster: Cluster) -> None:
    job = launch(cluster, "python3", "-c", _COUNTS)
    wait_until(lambda: (job.folder / "output.log").exists() and "begun" in job.log, "it runs")
    cluster.said("scancel", "--batch", "--signal=TERM", job.id)
    wait_until(job.has_result, "the result is there")
    assert (job.result()["exit_code"], job.log.count("told to stop")) == (9, 1)


def test_a_job_that_runs_again_keeps_its_former_result(cluster: Cluster) -> None:
    job = launch(
        cluster, "sh", "-c", 'echo run $SLURM_RESTART_COUNT; [ -n "$SLURM_RESTART_COUNT" ]'
    )
    wait_until(job.has_result, "it has run")
    wait_until(lambda: not cluster.said("squeue", "-h", "-a", "-j", job.id), "its node is free")
    # slurmd refuses a credential of the second in which it revoked the former ("already killed")
    time.sleep(1.1)
    cluster.said("scontrol", "requeue", job.id)
    cluster.said("scontrol", "update", f"jobid={job.id}", "starttime=now")
    wait_until(
        lambda: job.has_result("result.before.json") and job.has_result(), "it has run again"
    )
    assert (job.result("result.before.json")["exit_code"], job.result()["exit_code"]) == (1, 0)
    assert job.result()["restarts"] == 1
    anew = "dshpc: the job starts again; what stands above is of the run before"
    assert job.log.splitlines() == ["run", anew, "run 1"]


@pytest.mark.parametrize(
    ("options", "lines"), [((), ["run", "run 1"]), (("--open-mode=truncate",), ["run 1"])]
)
def test_the_log_of_a_plain_job_that_runs_again_goes_on(
    cluster: Cluster, options: tuple[str, ...], lines: list[str]
) -> None:
    """Unless the job says otherwise: Slurm's own default is to empty it."""
    script = 'echo run $SLURM_RESTART_COUNT; [ -n "$SLURM_RESTART_COUNT" ] || sleep 600'
    job = cluster.submit("--requeue", *options, script=script)
    wait_until(lambda: cluster.output(job) == "run\n", "it runs")
    cluster.said("scontrol", "requeue", job)
    wait_until(lambda: cluster.job_state(job)[0] == "PENDING", "it is queued again")
    time.sleep(1.1)  # as above
    cluster.said("scontrol", "update", f"jobid={job}", "starttime=now")
    cluster.completed(job)
    ran = [line for line in cluster.output(job).splitlines() if line.startswith("run")]
    assert ran == lines


def test_a_full_disk_does_not_change_the_exit_code(cluster: Cluster) -> None:
    job = launch(cluster, "sh", "-c", "rm -r .job; exit 5")
    assert follow(cluster, job).code == 5


def test_out_of_gpu_memory_is_said(cluster: Cluster) -> None:
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    job = launch(cluster, "sh", "-c", f"echo '{line}'; exit 1", options=("--gres=gpu:1",))
    followed = follow(cluster, job)
    assert followed.code == 1
    assert "out of GPU memory" in followed.stderr
    assert "gpu_memory_mb" in job.log
    assert shown(cluster, job.id)["out_of_memory"] == "gpu"
    # One that has caught it and went on is none
    good = launch(cluster, "sh", "-c", f"echo '{line}'; exit 0", options=("--gres=gpu:1",))
    assert follow(cluster, good).code == 0
    assert shown(cluster, good.id)["out_of_memory"] is None


@pytest.mark.engines("docker", why="a control group limits its memory")
def test_out_of_memory_is_said(cluster: Cluster) -> None:
    """The kernel ends what takes more than the container may have."""
    wait = 'until [ -e "$JOB_WORKSPACE/go" ]; do sleep 0.1; done'
    script = "x = bytearray(3 << 30); print(len(x))"
    job = launch(cluster, "sh", "-c", f'{wait}; exec python3 -c "{script}"')
    cluster.engine.said("update", "--memory=700m", "--memory-swap=700m", cluster.container)
    (job.folder / "go").touch()
    try:
        followed = follow(cluster, job)
    finally:
        cluster.engine.said("update", "--memory=0", "--memory-swap=-1", cluster.container)
    assert followed.code == 137
    assert job.result()["out_of_memory"] == "host"
    assert "memory_mb" in job.log
    one = shown(cluster, job.id)
    assert (one["out_of_memory"], one["signal"]) == ("host", "SIGKILL")
    assert one["max_rss_mib"] > 300


def test_an_array_and_its_tasks(cluster: Cluster) -> None:
    sets = tuple({"n": n} for n in range(3))
    script = 'cat "$PARAMS_FILE"; pwd; [ "$SLURM_ARRAY_TASK_ID" != 1 ]'
    job = launch(
        cluster, "sh", "-c", script, options=("--array=0-2",), parameters=sets, is_array=True
    )
    followed = follow(cluster, job)
    assert followed.code == 1
    assert "2 of 3 tasks are done" in followed.stderr
    said = cluster.dshpc("job", "logs", job.id, "--task", "2").good().stdout
    assert said.endswith(f"{job.folder}/task-2\n")
    assert '"n": 2' in said
    assert cluster.dshpc("job", "logs", job.id).code == 64
    assert shown(cluster, f"{job.id}_1")["exit_code"] == 1
    listed = cluster.dshpc("job", "list").good().stdout
    assert f"{job.id}_[0,2]" in listed


def test_why_a_job_waits(cluster: Cluster) -> None:
    first = cluster.submit("--gres=gpu:t4:1", script="sleep 600")
    second = cluster.submit("--gres=gpu:t4:1", script="true")
    never = cluster.submit("--hold", script="true")
    wait_until(lambda: "not free" in cluster.dshpc("job", "list").stdout, "the reason is there")
    jobs = {one["id"]: one for one in cluster.dshpc("job", "list", "--json").good().report["jobs"]}
    assert jobs[first]["state"] == "RUNNING"
    assert [gpu["index"] for gpu in jobs[first]["gpus"]] == [2]
    assert jobs[second]["reason"].startswith("gpu:t4:1 is not free")
    assert "it is held" in jobs[never]["reason"]


def test_a_plain_job_that_slurmctld_has_forgotten(cluster: Cluster) -> None:
    number = cluster.submit(script="exit 4")
    wait_until(lambda: shown(cluster, number)["state"] == "FAILED", "it has ended")
    log = cluster.said("cat", "/var/lib/dshpc/state/jobcomp/jobs.log")
    (line,) = [line for line in log.splitlines() if line.startswith(f"JobId={number} ")]
    line = line.replace(f"JobId={number} ", "JobId=77777 ")
    cluster.exec(
        "sh", "-c", 'echo "$1" >> /var/lib/dshpc/state/jobcomp/jobs.log', "sh", line
    ).good()
    one = shown(cluster, "77777")
    assert (one["state"], one["exit_code"]) == ("FAILED", 4)
    assert follow(cluster, "77777").code == 4


def test_the_log_of_ended_jobs_survives_a_restart(cluster: Cluster) -> None:
    number = cluster.submit(script="true")
    wait_until(lambda: shown(cluster, number)["state"] == "COMPLETED", "it has ended")
    # It saves for longer than the launcher waits before it hands a signal on
    save = 'echo told >>"$JOB_WORKSPACE/told"; sleep 1; touch "$JOB_WORKSPACE/saved"; exit'
    script = f"[ ! -e saved ] || exit 0; trap '{save}' TERM; echo run; while :; do sleep 0.1; done"
    running = launch(cluster, "sh", "-c", f'cd "$JOB_WORKSPACE"; {script}')
    wait_until(lambda: (running.folder / "output.log").exists() and running.log != "", "it runs")
    restarted = cluster.dshpc("restart", "--stop-jobs").good()
    assert "1 job is running, stopped now with 7 s to save work" in restarted.stderr
    assert "starts again at the next start" in restarted.stderr
    assert (running.folder / "told").read_text() == "told\n"
    assert shown(cluster, number)["state"] == "COMPLETED"
    owner = cluster.said("stat", "-c", "%U %a", "/var/lib/dshpc/state/jobcomp/jobs.log")
    assert owner == "slurm 644"
    wait_until(lambda: shown(cluster, running.id)["state"] == "COMPLETED", "it ran again", 90)
    assert running.result()["restarts"] == 1
    assert not running.has_result("result.before.json"), "the first run has not ended"


def test_a_name_or_a_folder_does_not_write_the_end_of_another_job(cluster: Cluster) -> None:
    forged = "JobId=424242 UserId=root(0) GroupId=root(0) Name=y"
    argv = ["sbatch", "--parsable", "--output=/dev/null", "--mem=10"]
    held = cluster.said(*argv, "--hold", "--wrap", "true")
    cluster.said("scontrol", "update", f"jobid={held}", f"JobName=x\n{forged}")
    cluster.said("scontrol", "release", held)
    named = cluster.said(*argv, "-J", f"x\n{forged}", "--wrap", "true")
    cluster.said("mkdir", "-p", f"/tmp/a\n{forged}")
    refused = cluster.exec(*argv, "-D", f"/tmp/a\n{forged}", "--wrap", "true")
    assert refused.code != 0
    assert "holds a line break" in refused.stderr

    def logged() -> str:
        return cluster.said("cat", "/var/lib/dshpc/state/jobcomp/jobs.log")

    wait_until(lambda: all(f"JobId={job} " in logged() for job in (held, named)), "both ended")
    assert "\nJobId=424242" not in logged()
    assert cluster.dshpc("job", "show", "424242").code == 2


def test_each_task_of_an_array_with_many_holes_is_found(cluster: Cluster) -> None:
    """squeue cuts the list of those that wait short, unless told not to."""
    argv = ["sbatch", "--parsable", "--hold", "--array=0-120", "--output=/dev/null"]
    number = cluster.said(*argv, "--wrap", "true")
    gone = [f"{number}_{task}" for task in range(120) if task % 5 in (1, 2) or task % 7 == 3]
    cluster.said("scancel", *gone)
    assert shown(cluster, f"{number}_119")["state"] == "PENDING"
    assert cluster.dshpc("job", "show", f"{number}_116").code == 2  # Slurm keeps nothing of it
    done = cluster.dshpc("job", "cancel", f"{number}_119", "--json").good().report
    assert done["jobs"] == [{"job_id": f"{number}_119", "result": "cancelled"}]
    assert max(len(line) for line in cluster.dshpc("job", "list").good().stdout.splitlines()) < 200


@pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")
def test_another_user(cluster: Cluster) -> None:
    cluster.work.chmod(0o777)
    number = cluster.submit(script="sleep 600")
    other = as_user(54321, "dshpc", "job", "cancel", number, cwd=cluster.folder)
    assert other.code == 2
    assert "permission denied" in other.stdout
    listed = as_user(54321, "dshpc", "job", "list", "--json", cwd=cluster.folder).good()
    assert number in [one["id"] for one in listed.report["jobs"]]


def test_following_survives_a_controller_that_is_away(cluster: Cluster) -> None:
    wait = 'until [ -e "$JOB_WORKSPACE/go" ]; do sleep 0.1; done'
    job = launch(cluster, "sh", "-c", f"echo one; {wait}; echo two; exit 6")
    pid = cluster.said("pidof", "slurmctld").split()[0]
    with started(cluster, "job", "logs", job.id, "-f") as child:
        assert told_line(child) == "one\n"
        cluster.said("kill", "-STOP", pid)
        time.sleep(3)  # it asks every half second
        cluster.said("kill", "-CONT", pid)
        (job.folder / "go").touch()
        stdout, stderr = child.communicate(timeout=120)
    assert (child.returncode, stdout) == (6, "two\n"), stderr


def test_a_signal_leaves_the_job_alone(cluster: Cluster) -> None:
    job = launch(cluster, "sh", "-c", "echo begun; exec sleep 600")
    for number in (signal.SIGINT, signal.SIGHUP):
        with started(cluster, "job", "logs", job.id, "-f") as child:
            assert told_line(child) == "begun\n"
            child.send_signal(number)
            _, stderr = child.communicate(timeout=60)
        assert child.returncode == 128 + number
        assert f"job {job.id} is no longer watched. It keeps running" in stderr
        assert shown(cluster, job.id)["state"] == "RUNNING"
    with started(cluster, "job", "logs", job.id, "-f") as child:
        assert told_line(child) == "begun\n"
        cluster.dshpc("job", "cancel", job.id).good()
        _, stderr = child.communicate(timeout=60)
    assert child.returncode == 143
    assert "watched" not in stderr  # it was the job that a signal has ended


STAND_IN = """#!/bin/sh
case "$(cat /run/dshpc/stand-in)" in
late) cat >/tmp/late
    {
        until [ -e /run/dshpc/stand-in.go ]; do sleep 0.1; done
        exec /usr/bin/sbatch "$@" </tmp/late
    } >/dev/null 2>&1 &
    echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1 ;;
esac
/usr/bin/sbatch "$@" >/dev/null
case "$(cat /run/dshpc/stand-in)" in
killed) kill -9 $$ ;;
hangs) exec sleep 300 ;;
esac
"""


@pytest.fixture
def stand_in(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Puts an sbatch that submits and gives no answer before the real one."""
    path = "/usr/local/bin/sbatch"
    cluster.exec("sh", "-c", f"cat >{path}; chmod 755 {path}", given=STAND_IN).good()

    def how(word: str) -> None:
        cluster.exec("sh", "-c", f"echo {word} >/run/dshpc/stand-in").good()

    yield how
    cluster.exec("rm", path).good()


def names(cluster: Cluster, name: str) -> list[str]:
    return cluster.said("squeue", "-h", "-a", "-t", "all", "-n", name, "-o", "%i").split()


def test_a_lost_answer_of_sbatch(cluster: Cluster, stand_in: Callable[[str], None]) -> None:
    """The job is found in the queue, or never runs; in no case there are two."""
    stand_in("killed")
    told = cluster.dshpc("run", "--json", "--name", "lost", "--", "true").good().report
    assert "The job was found in the queue." in told["notes"][0]
    assert names(cluster, "lost") == [told["job_id"]]
    stand_in("late")
    refused = cluster.dshpc("run", "--name", "late", "--", "touch", str(cluster.work / "late"))
    assert refused.code == 3
    assert "The job was not submitted: sbatch got no answer" in refused.stderr
    cluster.said("touch", "/run/dshpc/stand-in.go")
    wait_until(lambda: names(cluster, "late") != [], "Slurm takes it all the same")
    (late,) = names(cluster, "late")
    wait_until(lambda: shown(cluster, late)["state"] == "FAILED", "it has ended")
    assert not (cluster.work / "late").exists()
    wait_until(lambda: cluster.node()[1] == "idle", "the node was not taken out for it")


def test_ctrl_c_in_a_submission(cluster: Cluster, stand_in: Callable[[str], None]) -> None:
    stand_in("hangs")
    with started(cluster, "run", "--name", "hung", "--", "sleep", "600") as child:
        wait_until(lambda: names(cluster, "hung") != [], "Slurm has it")
        child.send_signal(2)
        _, stderr = child.communicate(timeout=60)
    (hung,) = names(cluster, "hung")
    assert (child.returncode, f"Cancelled again: job {hung}." in stderr) == (130, True), stderr
    assert shown(cluster, hung)["state"] == "CANCELLED"


def test_wrong_words(cluster: Cluster) -> None:
    for words in (["show", "x;y"], ["logs", "1_"], ["cancel", "--", "-1"], ["show", "99999999999"]):
        assert cluster.dshpc("job", *words).code == 64, words
    missing = cluster.dshpc("job", "show", "99999", "--json")
    assert (missing.code, missing.report["schema"]) == (2, "dshpc.error/1")
