"""`dshpc node add`: another machine becomes a node over ssh, or is left as it was."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.integration import hand_images as hand
from tests.integration.cluster import (
    PREFIX,
    Cluster,
    Outcome,
    as_root,
    command,
    run,
    users_of_this_machine,
    wait_until,
)
from tests.integration.engines import Engine
from tests.integration.lan import Member, needs_namespaces, network
from tests.integration.ssh_server import Client, serving

pytestmark = pytest.mark.engines(
    "builtin", why="each machine needs an engine with a store of its own, and this one is a folder"
)
NODE = "lab7"


@dataclass(frozen=True)
class Two:
    """A controller that listens, and a machine with nothing of ours and an ssh server."""

    first: Member
    second: Member
    client: Client
    third: Member  # without an ssh server yet
    node: str = NODE

    @property
    def there(self) -> Path:
        """Where its program and node go."""
        return self.second.top / "added"

    def argv(self, *words: str, host: str | None = None) -> list[str]:
        at = ("--node-name", self.node, "--folder", str(self.there), host or self.second.address)
        line = command("dshpc", "node", "add", *at, *words)
        return self.first.argv("env", self.client.path, *line)

    def add(self, *words: str, host: str | None = None) -> Outcome:
        return run(self.argv(*words, host=host), cwd=self.first.folder)

    def in_folder(self, name: str, *words: str) -> Outcome:
        """dshpc on the first machine, typed in a folder of the work folder."""
        folder = self.first.folder / "work" / name
        folder.mkdir(exist_ok=True)
        return run(self.first.argv(*command("dshpc", *words)), cwd=folder)

    def submitted(self, *words: str, at: str = "proj") -> tuple[str, Path]:
        """A job on the second machine: its number and its workspace."""
        told = json.loads(self.in_folder(at, "run", "--json", *words).good().stdout)
        return told["job_id"], Path(told["workspace"])

    def state(self, job: str) -> str:
        words = self.first.said("scontrol", "show", "job", job).split()
        return next(word.split("=")[1] for word in words if word.startswith("JobState="))

    @property
    def workspaces(self) -> Path:
        """Root's, by the path that both machines have for them."""
        return self.first.folder / "work" / "jobs" / "0"

    def has_left_nothing(self) -> bool:
        """On the second machine, of any job."""
        return self.first.said("srun", "-w", NODE, "-D", "/", "ls", str(self.workspaces)) == ""

    def is_as_it_was(self) -> bool:
        """Nothing of it is left, on neither side."""
        tokens = json.loads((self.first.folder / ".dshpc/join/tokens.json").read_text())["tokens"]
        nodes = json.loads(self.first.said("node", "list", "--json"))["nodes"]
        return (
            not self.there.exists()
            and all(each["revoked"] for each in tokens)
            and [each["name"] for each in nodes] == [f"{PREFIX}add"]
        )


@pytest.fixture(scope="module")
def two(
    engine: Engine, standard: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Two]:
    needs_namespaces()
    image = tmp_path_factory.mktemp("image") / "image.tar.gz"
    standard.dshpc("image", "save", str(image)).good()
    with network("near", "far", "own") as (first, second, third):
        first.configure(
            "--prefix", f"{PREFIX}add", "--simulate", "h100:2", "--listen", "eth0", "--image-file", str(image)
        ).good()  # fmt: skip
        with serving(second, second.top / "ssh", first.folder / "work") as client:
            made = Two(first, second, client, third)
            yield made
            if made.there.exists():
                run(second.argv(str(made.there / "dshpc"), "destroy", "--yes", "--stop-jobs", "--image",
                                "--dir", str(made.there)))  # fmt: skip


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code not in (0, 1), outcome
    for word in words:
        assert word in outcome.stderr, (word, outcome)
    assert "Traceback" not in outcome.stderr


def test_who_is_not_let_in_is_told_why(two: Two) -> None:
    refused(two.add(host="root@nowhere.invalid"), "No machine is called nowhere.invalid")
    refused(two.add("--port", "1"), "No ssh server listens")
    other = (two.client.folder / "key.pub").read_text()
    with two.client.with_file("known", f"{two.second.address} {other}"):
        refused(
            two.add(), "has another host key than before", f"ssh-keygen -R {two.second.address}"
        )
    with two.client.with_file("known", ""):
        refused(two.add(), "is not known here")
    with two.client.with_file("authorized", ""):
        refused(two.add(), "does not let this user in", "ssh-copy-id")
    refused(two.add("--", "--join", "x"), "says that itself")
    two.there.mkdir()
    refused(two.add(), "is not of our making")
    two.there.rmdir()
    assert two.is_as_it_was()


def test_what_the_proofs_refuse_leaves_nothing_there(two: Two) -> None:
    port = next(
        line.split("=")[1]
        for line in (two.first.folder / "config/slurm.conf").read_text().splitlines()
        if line.startswith("SlurmdPort=")
    )
    with two.second.closed("-p", "tcp", "--dport", port):
        refused(two.add(), "did not become a node", f"{two.second.address}: ", f"tcp dport {port}")
    assert two.is_as_it_was()


def test_ctrl_c_ends_the_other_side_too(two: Two) -> None:
    asked = subprocess.Popen(
        two.argv("--", "--simulate", "t4:1"),
        cwd=two.first.folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        begun = two.there / ".dshpc/runtime.json"
        wait_until(begun.exists, "its node is being made", 600)
        os.kill(asked.pid, signal.SIGINT)
        _, said = asked.communicate(timeout=600)
    finally:
        asked.kill()
    assert asked.returncode == 130, said
    assert f"Ending it on {two.second.address}" in said
    assert two.is_as_it_was(), said


def test_it_becomes_a_node_and_runs_a_job(two: Two) -> None:
    made = two.add("--", "--simulate", "t4:1").good()
    assert f"Added: {NODE}, idle, gpu:t4:1: srun -w {NODE} --gres=gpu:1 passed" in made.stdout
    steps = [
        line for line in made.stderr.splitlines() if line.startswith(f"{two.second.address}: ")
    ]
    assert any("verify" in line and "passed" in line for line in steps), made
    assert two.first.said("srun", "-w", NODE, "hostname") == NODE
    tokens = json.loads((two.first.folder / ".dshpc/join/tokens.json").read_text())["tokens"]
    assert all(each["revoked"] for each in tokens)
    # Its work folder is another one: that is told, and jobs with files keep off it
    for words in (
        "is not shared",
        "nfs-kernel-server",
        "dnf install -y nfs-utils",
        "mount -t nfs4",
    ):
        assert words in made.stderr
    waits = ("sbatch", "--hold", "--wrap", "true")
    assert f"node {NODE} has not this work folder" in two.first.dshpc(*waits).good().stderr
    assert f"node {NODE}" not in two.first.dshpc(*waits, f"--exclude={NODE}").good().stderr
    for told in (("node", "list"), ("status",), ("doctor", "--json")):
        assert f"{NODE} has another work folder" in two.first.dshpc(*told).stdout
    in_work = two.in_folder("proj", "srun", "-w", NODE, "true").good()
    assert f"node {NODE} has not this work folder" in in_work.stderr
    # Once more: the image is there, and is not carried again
    again = two.add("--", "--simulate", "t4:2").good()
    assert "the image is there already" in again.stderr
    assert "the program is there already" in again.stderr
    assert "gpu:t4:2" in again.stdout


def test_a_new_key_goes_there_by_the_same_way(two: Two) -> None:
    """Of what runs there nothing is lost; and all are reached once more by one command."""
    words = ("sbatch", "--parsable", "-w", NODE, "-D", "/tmp", "-o", "/tmp/out", "--wrap")
    job = two.first.said(*words, "sleep 20; echo done")
    shown = ("scontrol", "show", "job", job)
    wait_until(lambda: "JobState=RUNNING" in two.first.said(*shown), "the job runs", 30)
    line = two.first.argv("env", two.client.path, *command("dshpc", "key", "rotate", "--yes"))
    told = run(line, cwd=two.first.folder).good().stdout
    assert f"Joined again: {NODE}, " in told
    assert "On other machines" not in told
    wait_until(lambda: "JobState=COMPLETED" in two.first.said(*shown), "the job has ended", 60)
    assert "Restarts=0" in two.first.said(*shown)
    with two.client.with_file("authorized", ""):
        line = two.first.argv("env", two.client.path, *command("dshpc", "node", "add", "--again"))
        done = run(line, cwd=two.first.folder)
    assert done.code == 3
    assert f"{NODE} has not joined again: {two.second.address} does not let" in done.stderr


def test_a_workspace_goes_there_and_comes_back(two: Two) -> None:
    """With the folder that the command was typed in, an input, and the exit code of the program."""
    work = two.first.folder / "work"
    (work / "proj").mkdir(exist_ok=True)
    (work / "proj/step.sh").write_text(
        'cat "$INPUT_FILE" part/x; echo made >out; echo more >"$JOB_WORKSPACE/own"; hostname; exit 3\n'
    )
    (work / "proj/part").mkdir()
    (work / "proj/part/x").write_text("of the folder\n")
    (work / "in.txt").write_text("of the input\n")
    done = two.in_folder(
        "proj", "run", "--wait", "--input", str(work / "in.txt"), "-t", NODE, "--", "sh", "step.sh"
    )
    assert (done.code, done.stdout) == (3, f"of the input\nof the folder\n{NODE}\n")
    (job,) = (
        it
        for it in json.loads(two.first.said("job", "list", "--json"))["jobs"]
        if it["name"] == "sh"
    )
    there = Path(job["workspace"])
    assert (there / "here/out").read_text() == "made\n"
    assert (there / "own").read_text() == "more\n"
    assert not (there / "here/step.sh").exists()  # it has not changed
    assert not (work / "proj/out").exists()
    assert json.loads((there / ".job/result.json").read_text())["exit_code"] == 3
    assert f"all is back from {NODE}" in two.first.said("job", "show", job["id"])
    assert sorted(os.listdir(there / ".job")) == ["carried.json", "job.json", "params.json", "request.json",
                                                   "result.json"]  # fmt: skip
    wait_until(two.has_left_nothing, "nothing is left there", 20)


def test_what_cannot_be_carried_is_refused(two: Two) -> None:
    folder = two.first.folder / "work" / "big"
    folder.mkdir()
    with open(folder / "large", "wb") as file:
        os.truncate(file.fileno(), 200 << 20)
    told = two.in_folder("big", "run", "-t", NODE, "--", "true")
    refused(told, "has not the work folder", "200 MiB, 100 MiB at most")
    shown = json.loads(two.in_folder("big", "run", "--dry-run", "--json", "--", "true").stdout)
    assert f"--exclude={NODE}" in shown["sbatch"]
    shutil.rmtree(folder)  # others are submitted from the folder above


def test_an_environment_and_an_image_go_there_once(two: Two, tmp_path: Path) -> None:
    """The environment is made outside of the machines' network, from which no index is reached."""
    (tmp_path / "requirements.txt").write_text("cowsay==6.1\n")
    (tmp_path / "top").mkdir()
    layers = [hand.layer(hand.busybox(hand.debian_busybox(tmp_path / "top")))]
    image = hand.archive(tmp_path / "image.tar", hand.docker(layers))
    cache = {"XDG_CACHE_HOME": str(two.first.top / "cache")}
    own = two.workspaces

    def ran(option: str, value: Path, *words: str) -> str:
        line = command("dshpc", "run", "--wait", "-t", NODE, option, str(value), "--", *words)
        return run(line, cwd=two.first.folder / "work", env=cache).good().stdout

    def there(folder: str) -> list[str]:
        words = ("srun", "-w", NODE, "-D", "/", "stat", "-c", "%i %n")
        return two.first.said(*words, *map(str, (own / folder).glob("[0-9a-f]*"))).splitlines()

    python = "import sys, os, cowsay; print(sys.prefix, os.environ['SLURMD_NODENAME'])"
    (prefix, node) = ran("--env", tmp_path, "python3", "-c", python).split()
    assert (os.path.dirname(prefix), node) == (f"{own}/.envs", NODE)
    assert "| moo |" in ran(
        "--env", tmp_path, "cowsay", "-t", "moo"
    )  # a script, with its first line
    before = there(".envs")
    assert ran("--image", image, "sh", "-c", "hostname; echo $FROM_IMAGE; pwd").split()[:2] == [
        NODE,
        "yes",
    ]
    images = there(".images")
    ran("--env", tmp_path, "true")
    ran("--image", image, "true")
    assert (there(".envs"), there(".images")) == (before, images)
    wait_until(two.has_left_nothing, "nothing else is left there", 20)


def test_particular_gpus_of_a_node_without_the_folder(two: Two) -> None:
    words = ("--", "sh", "-c", "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES")
    done = two.in_folder("proj", "run", "--wait", "-t", f"{NODE}::0,1", *words).good()
    assert done.stdout == f"{NODE} 0,1\n"
    refused(
        two.in_folder("proj", "run", "-t", f"{NODE}::1", *words), "cannot be requested by index"
    )
    refused(two.in_folder("proj", "run", "-t", f"{NODE}::7", *words), f"{NODE} has no such GPU")


def test_a_script_in_an_old_workspace_is_told_and_keeps_its_log(two: Two) -> None:
    """What `sbatch` starts takes nothing along; what it leaves is not removed as what was carried is."""
    job, there = two.submitted("--target", f"{PREFIX}add", "--", "true")
    wait_until(lambda: two.state(job) == "COMPLETED", "it has ended", 60)
    words = ("sbatch", "--parsable", "-w", NODE, f"--chdir={there}", "--wrap", "echo said; pwd")
    told = two.first.dshpc(*words).good()
    assert "in the workspace of an earlier job" in told.stderr
    assert "stays on that node" in told.stderr
    job = told.stdout.strip()
    wait_until(lambda: two.state(job) == "COMPLETED", "it has ended", 60)
    at_node = ("srun", "-w", NODE, "-D", "/")
    assert two.first.said(*at_node, "cat", f"{there}/slurm-{job}.out") == f"said\n{there}"
    two.first.said(*at_node, "rm", "-r", str(there))


def test_many_files_with_any_names_come_back_and_nothing_leads_out(two: Two) -> None:
    names = [b"a\x1b[2J", b"line\nbreak", b"\xff\xfe", b" ", b"-rf", b"x" * 255]
    script = (
        "import os\n"
        f"for name in {names!r}: open(name, 'w').write('made')\n"
        "os.mkdir('many')\n"
        "for number in range(10_000): open(f'many/{number}', 'w').write(str(number))\n"
        f"os.symlink({str(two.first.folder / 'work')!r}, 'out')\n"
        "os.rename('data', 'gone'); os.symlink('/etc', 'data')\n"
    )
    folder = two.first.folder / "work/any"
    (folder / "data").mkdir(parents=True)
    (folder / "data/x").write_text("mine")
    job, there = two.submitted("-t", NODE, "--", "python3", "-c", script, at="any")
    wait_until(lambda: two.state(job) == "COMPLETED", "it has ended", 60)
    here = there / "here"
    for name in names:
        assert Path(os.fsdecode(bytes(here) + b"/" + name)).read_text() == "made"
    assert sorted(map(int, os.listdir(here / "many"))) == list(range(10_000))
    assert (here / "many/9999").read_text() == "9999"
    assert (os.readlink(here / "data"), os.readlink(here / "out")) == ("/etc", str(folder.parent))
    assert (here / "gone/x").read_text() == (folder / "data/x").read_text() == "mine"
    assert f"all is back from {NODE}" in two.first.said("job", "show", job)
    wait_until(two.has_left_nothing, "nothing is left there", 20)


def test_a_log_is_seen_while_the_job_runs_and_a_cancelled_one_brings_its_files(two: Two) -> None:
    script = "trap 'echo saved >saved; exit 9' TERM; echo begun; sleep 300 & wait"
    job, there = two.submitted("-t", NODE, "--", "sh", "-c", script)
    log = there / "output.log"
    wait_until(lambda: log.exists() and "begun" in log.read_text(), "its log is here", 30)
    assert two.state(job) == "RUNNING"
    two.first.said("job", "cancel", job)
    wait_until((there / "here/saved").exists, "what it saved is here", 30)
    wait_until(lambda: two.state(job) == "CANCELLED", "it has ended", 40)
    wait_until(two.has_left_nothing, "nothing is left there", 40)


def test_two_nodes_of_one_job_bring_what_each_has_written(two: Two) -> None:
    script = 'cd "$JOB_WORKSPACE"; echo $SLURMD_NODENAME | tee "of-$SLURMD_NODENAME" >both'
    job, there = two.submitted("--nodes", "2", "--", "sh", "-c", script)
    wait_until(lambda: two.state(job) == "COMPLETED", "it has ended", 60)
    own = f"{PREFIX}add"
    for name in (own, NODE):
        assert (there / f"of-{name}").read_text() == f"{name}\n"
    assert (there / "both").read_text() == f"{own}\n"
    assert (there / f"from-{NODE}/both").read_text() == f"{NODE}\n"
    words = ("run", "--json", "-t", own, "-t", NODE, "--", "hostname")
    jobs = json.loads(two.in_folder("proj", *words).good().stdout)["jobs"]
    logs = [Path(each["workspace"]) / "output.log" for each in jobs]
    wait_until(lambda: all(log.exists() and log.read_text() for log in logs), "both ran", 60)
    assert [log.read_text() for log in logs] == [f"{own}\n", f"{NODE}\n"]
    wait_until(two.has_left_nothing, "nothing is left there", 20)


def test_a_workflow_and_an_array_of_a_method_run_there(two: Two) -> None:
    """The method, and the result that the next step requires, go along."""
    folder = two.first.folder / "methods/count"
    folder.mkdir(parents=True)
    (folder / "method.json").write_text(json.dumps({
        "name": "count", "command": "sh", "script_path": "run.sh",
        "parameters": [{"name": "n", "type": "integer", "default": 1}],
        "resources": {"gpus": 1, "gpu_type": "t4"},
    }))  # fmt: skip
    (folder / "run.sh").write_text(
        'cp "$PARAMS_FILE" "$JOB_WORKSPACE/got"; cat "$METHOD_DIR/method.json" >/dev/null\n'
    )
    (two.first.folder / "sets.csv").write_text("n\n5\n6\n")
    words = ("method", "run", "count", "--array", "sets.csv", "--json")
    there = Path(json.loads(two.first.said(*words))["workspace"])
    results = [there / f".job/result-{task}.json" for task in (0, 1)]
    wait_until(lambda: all(path.exists() for path in results), "both tasks have ended", 60)
    got = [json.loads((there / f"task-{task}/got").read_text()) for task in (0, 1)]
    assert got == [{"n": 5}, {"n": 6}]
    flow = two.first.folder / "work/flow.yaml"
    flow.write_text(
        "name: flow\njobs:\n"
        "  first:\n    command: sh -c 'echo of the first >$JOB_WORKSPACE/x'\n"
        "    resources: {gpus: 1, gpu_type: t4}\n"
        "  second:\n    command: sh -c 'cat $(dirname $REQUIRES_FILE)/../requires/first/x'\n"
        "    requires: [first]\n    resources: {gpus: 1, gpu_type: t4}\n"
    )
    two.first.dshpc("workflow", "run", str(flow), "--wait").good()
    jobs = json.loads(two.first.said("job", "list", "--json"))["jobs"]
    (second,) = (it for it in jobs if it["name"] == "second")
    assert Path(second["log"]).read_text() == "of the first\n"
    wait_until(two.has_left_nothing, "nothing is left there", 20)


def test_a_node_that_dies_leaves_nothing_and_the_job_runs_again(two: Two) -> None:
    script = (
        'echo run | tee -a "$JOB_WORKSPACE/runs"; [ "${SLURM_RESTART_COUNT:-0}" = 1 ] || sleep 300'
    )
    job, there = two.submitted("-t", NODE, "--", "sh", "-c", script)
    log = there / "output.log"
    wait_until(lambda: log.exists() and log.read_text() == "run\n", "it runs", 30)
    two.second.kill(f"{PREFIX}add-slurm")
    wait_until(lambda: two.state(job) == "COMPLETED", "it ran again", 240)
    assert (there / "runs").read_text() == "run\n"
    wait_until(lambda: f"it wrote on {NODE} did not come back" in log.read_text(), "it says so", 60)
    assert "starts again" in log.read_text()
    wait_until(two.has_left_nothing, "nothing is left there", 30)


def test_a_machine_of_a_user_without_a_range_of_ids(two: Two) -> None:
    """The last one here. It takes his jobs alone, and says whose as soon as his name is known."""
    node, other, name, top = "lab8", "4713", "dshpc-no-range", two.third.top
    with (
        serving(two.third, top / "ssh", two.first.folder / "work") as client,
        users_of_this_machine(name, ranges=False),
    ):
        number = str(pwd.getpwnam(name).pw_uid)
        run(as_root("chown", name, str(top))).good()
        own = replace(two, second=replace(two.third, uid=int(number)), client=client, node=node)
        try:
            made = own.add("--", "--simulate", "l4:1", host=f"{name}@{own.second.address}").good()
            assert f"takes the jobs of {name} (user number {number}) alone" in made.stderr
            assert (
                f"Added: {node}, idle, gpu:l4:1: srun -w {node} --gres=gpu:1 passed" in made.stdout
            )
            assert f"{node} takes the jobs of {name} alone" in two.first.said("node", "list")

            def srun(uid: str) -> Outcome:
                return two.first.user(uid, "srun", "-w", node, "-D/tmp", "id", "-u")

            for uid, user, owner in ((other, "bob", f"user number {number}"), (number, name, name)):
                two.first.root("dshpc-node", "add-user", uid, uid, user)
                told = srun(other)
                assert told.code != 0
                assert f"node {node} takes the jobs of {owner} alone" in told.stderr, told
            assert srun(number).good().stdout == f"{number}\n"
        finally:
            run(own.second.argv(str(own.there / "dshpc"), "destroy", "--yes", "--stop-jobs", "--image",
                                "--dir", str(own.there)))  # fmt: skip
