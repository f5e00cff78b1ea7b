"""`dshpc node add`: another machine becomes a node over ssh, or is left as it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cluster import PREFIX, Cluster, Outcome, command, run, wait_until
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

    @property
    def there(self) -> Path:
        """Where its program and node go."""
        return self.second.top / "added"

    def argv(self, *words: str, host: str | None = None) -> list[str]:
        at = ("--node-name", NODE, "--folder", str(self.there), host or self.second.address)
        line = command("dshpc", "node", "add", *at, *words)
        return self.first.argv("env", self.client.path, *line)

    def add(self, *words: str, host: str | None = None) -> Outcome:
        return run(self.argv(*words, host=host), cwd=self.first.folder)

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
    with network("near", "far") as (first, second):
        first.configure(
            "--prefix", f"{PREFIX}add", "--simulate", "h100:2", "--listen", "eth0", "--image-file", str(image)
        ).good()  # fmt: skip
        with serving(second, second.top / "ssh", first.folder / "work") as client:
            made = Two(first, second, client)
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
    refused(
        two.first.dshpc("run", "--gpus", "1", "--gpu-type", "t4", "--", "true"), "has not the work"
    )
    shown = json.loads(two.first.said("run", "--dry-run", "--json", "--", "true"))
    assert f"--exclude={NODE}" in shown["sbatch"]
    waits = ("sbatch", "--hold", "--wrap", "true")
    assert f"node {NODE} has not this work folder" in two.first.dshpc(*waits).good().stderr
    assert f"node {NODE}" not in two.first.dshpc(*waits, f"--exclude={NODE}").good().stderr
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
    assert f"Joined anew: {NODE}, " in told
    assert "On other machines" not in told
    wait_until(lambda: "JobState=COMPLETED" in two.first.said(*shown), "the job has ended", 60)
    assert "Restarts=0" in two.first.said(*shown)
    with two.client.with_file("authorized", ""):
        line = two.first.argv("env", two.client.path, *command("dshpc", "node", "add", "--again"))
        done = run(line, cwd=two.first.folder)
    assert done.code == 3
    assert f"{NODE} has not joined anew: {two.second.address} does not let" in done.stderr
