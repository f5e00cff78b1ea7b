"""Another machine becomes a node: by a token, with proofs both ways, and jobs across the network."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dshpc_setup.join import client
from dshpc_setup.join.messages import Facts
from dshpc_setup.machine import addresses
from dshpc_setup.machine.listeners import listen
from tests.integration.cluster import PREFIX, Cluster, Outcome, wait_until
from tests.integration.engines import Engine
from tests.integration.lan import Member, address, needs_namespaces, network

pytestmark = pytest.mark.engines(
    "builtin", why="each machine needs an engine with a store of its own, and this one is a folder"
)
NODE = "lab2"
UID = "4711"
OWNED, OTHER = "laptop", "4713"


@dataclass(frozen=True)
class Lan:
    """A controller that listens, and two that have not joined yet; the third is a user's who has no range of
    ids. `image`: a file."""

    first: Member
    second: Member
    third: Member
    image: Path

    def token(self, *words: str) -> str:
        line, *_ = self.first.said("node", "token", *words).splitlines()
        assert line.startswith("./configure-environment --yes --join dshpc1-"), line
        return line.split()[-1]

    def join(self, token: str, *words: str, before: tuple[str, ...] = ()) -> Outcome:
        image = ("--image-file", str(self.image), "--simulate", "t4:1")
        named = ("--join", token, "--node-name", NODE)
        return self.second.configure(*named, *image, *words, before=before)

    def user(self, uid: str, *words: str) -> Outcome:
        """A command of a user of the cluster's, in the controller's container."""
        return self.first.user(uid, *words)

    def add_user(self, name: str) -> str:
        """What is said as the user submits for the first time."""
        words = ("exec", "--root", "--", "dshpc-node", "add-user", UID, UID, name)
        return self.first.dshpc(*words).good().stderr

    def ports(self) -> dict[str, int]:
        text = (self.first.folder / "config/slurm.conf").read_text()
        pairs = (line.split("=", 1) for line in text.splitlines() if line.startswith("Slurm"))
        return {key: int(value) for key, value in pairs if key.endswith("Port")}


@pytest.fixture(scope="module")
def lan(
    engine: Engine, standard: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lan]:
    needs_namespaces()
    image = tmp_path_factory.mktemp("image") / "image.tar.gz"
    standard.dshpc("image", "save", str(image)).good()
    with network("one", "two", "three") as (first, second, third):
        prefix = f"{PREFIX}lan"
        made = first.configure(
            "--prefix", prefix, "--simulate", "h100:2", "--listen", "eth0", "--image-file", str(image)
        )  # fmt: skip
        made.good()
        yield Lan(first, second, third.of_user(int(UID)), image)


def refused(outcome: Outcome, *words: str) -> None:
    """It said so, and has written nothing."""
    assert outcome.code != 0, outcome
    for word in words:
        assert word in outcome.stdout + outcome.stderr, (word, outcome)


def test_what_is_closed_or_wrong_is_refused_before_anything_is_written(lan: Lan) -> None:
    ports, token = lan.ports(), lan.token()
    whole = "From this machine to slurmctld"
    with lan.first.closed("-p", "tcp", "--dport", str(ports["SlurmctldPort"])):
        refused(lan.join(token), whole, f"tcp dport {ports['SlurmctldPort']}", lan.first.address)
    slurmd = ports["SlurmdPort"]
    with lan.second.closed("-p", "tcp", "--dport", str(slurmd)):
        refused(
            lan.join(token), f"slurmd's port {lan.second.address}:{slurmd}", f"tcp dport {slurmd}"
        )
    refused(
        lan.join(token[:-2] + ("AA" if token[-2:] != "AA" else "BB")), "not the token of a cluster"
    )
    refused(lan.join(token, "--node-name", f"{PREFIX}lan-3"), "its name")
    (lan.first.folder / "work" / "here").write_text("")
    lan.first.said("node", "token", "--revoke")
    refused(lan.join(token), "No join service listens")
    refused(lan.join(lan.token("--ttl", "1m"), "--listen", "192.0.2.77"), "no such address")
    assert list(lan.second.folder.iterdir()) == []
    lan.first.said("node", "token", "--revoke")
    assert [path.name for path in (lan.first.folder / "work").glob(".dshpc-join-*")] == []


def test_it_joins_and_takes_jobs(lan: Lan, tmp_path: Path) -> None:
    token = lan.token("--once")
    # That machine has the number of a user who comes later for somebody else
    (tmp_path / "getent").write_text(
        f'#!/bin/sh\n[ "$*" = passwd ] || exec /usr/bin/getent "$@"\necho eve:x:{UID}:1::/:\n'
    )
    (tmp_path / "getent").chmod(0o755)
    before = ("env", f"PATH={tmp_path}:{os.environ['PATH']}")
    report = lan.join(token, before=before).good().report
    assert report["cluster"]["nodes"] == [{"name": NODE, "gres": "gpu:t4:1", "state": "idle"}]
    assert "not encrypted" in " ".join(report["notes"])
    there = lan.first.said("srun", "-N2", "--gres=gpu:1", "hostname").split()
    assert sorted(there) == sorted([f"{PREFIX}lan", NODE])
    # A user of whom that machine has not heard, and his home there
    said = lan.add_user("ada")
    assert f"on {NODE} {UID} is eve" in said
    assert f"--exclude={NODE}" in said
    as_ada = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
    script = 'id -un; test -O "$HOME" && echo home'
    told = lan.first.root(*as_ada, "env", "HOME=/var/lib/dshpc/home/ada", "srun", "-w", NODE, "-D", "/tmp",
                          "sh", "-c", script)  # fmt: skip
    assert told.split() == ["ada", "home"]
    # What it offers is known where jobs are submitted
    assert "gpu:t4:1" in lan.first.said(
        "run", "--dry-run", "--gpu-type", "t4", "--gpus", "1", "--", "true"
    )
    nodes = json.loads(lan.first.said("node", "list", "--json"))["nodes"]
    assert [(node["name"], node["address"] == lan.second.address) for node in nodes][1:] == [
        (NODE, True)
    ]
    log = (lan.first.folder / ".dshpc/join/log").read_text()
    assert f"joined: {NODE} from {lan.second.address}" in log
    assert token not in log
    refused(lan.join(token, "--node-name", "lab3"), "used by another machine")


def test_the_work_folder_is_one_and_the_key_is_nowhere_on_the_host(lan: Lan) -> None:
    work = lan.first.folder / "work"
    lan.first.said("srun", "-w", NODE, "sh", "-c", f"hostname >{work}/from")
    assert (work / "from").read_text() == f"{NODE}\n"
    key = lan.first.root("cat", "/var/lib/dshpc/key/slurm.key")
    secret = json.loads(key)["keys"][0]["k"]
    assert json.loads(lan.second.root("cat", "/var/lib/dshpc/key/slurm.key")) == json.loads(key)
    for member in (lan.first, lan.second):
        for path in (member.folder).rglob("*"):
            if path.is_file() and "volumes" not in path.parts:
                assert secret.encode() not in path.read_bytes(), path


def test_doctor_finds_both_well_and_each_gpu_has_its_own_job(lan: Lan) -> None:
    """Of the jobs of the other machine no process is here, which is no fault."""
    words = ("sbatch", "--parsable", "--gres=gpu:1", "-o", "/dev/null", "--wrap", "sleep 300")
    jobs = [lan.first.said(*words, "-w", node) for node in (NODE, f"{PREFIX}lan")]
    for job in jobs:
        wait_until(lambda job=job: _state(lan, job) == "RUNNING", "the job runs", 30)  # type: ignore[misc]
    for member in (lan.first, lan.second):
        found = json.loads(member.dshpc("doctor", "--json").stdout)
        broken = {
            it["id"] for it in found["findings"] if it["state"] in ("warn", "error", "crashed")
        }
        assert broken == ({"DSH-SL-068"} if member is lan.first else set()), member
    gpus = json.loads(lan.first.dshpc("gpus", "--json").good().stdout)
    (there,) = gpus["nodes"]
    held = [[job["job_id"] for job in card["jobs"]] for card in (*there["gpus"], *gpus["gpus"])]
    assert (there["node"], held) == (NODE, [[jobs[0]], [jobs[1]], []])
    metrics = lan.first.said("metrics")
    assert f'dshpc_gpu_job_info{{Hostname="{NODE}"' in metrics
    assert f"Node:            {NODE}" in lan.first.said("job", "show", jobs[0])
    assert lan.second.dshpc("gpus").code == 0
    lan.first.said("scancel", *jobs)

    def counted() -> bool:
        found = json.loads(lan.first.said("job", "list", "--all", "--json"))["jobs"]
        (mine,) = (job for job in found if job["id"] == jobs[0])
        return [(gpu["node"], gpu["type"]) for gpu in mine["gpus"]] == [(NODE, "t4")]

    wait_until(counted, "the GPU of the other machine is written down", 60)


def test_unplugged_while_a_job_runs_it_comes_back_by_itself(lan: Lan) -> None:
    out = lan.first.folder / "work" / "away"
    job = lan.first.said(
        "sbatch", "--parsable", "-w", NODE, "-o", str(out), "--wrap", "sleep 8; echo done"
    )
    wait_until(lambda: _state(lan, job) == "RUNNING", "the job runs", 30)
    with lan.second.unplugged():
        wait_until(lambda: out.exists() and out.read_text() == "done\n", "it ends, away", 60)
    wait_until(lambda: _state(lan, job) == "COMPLETED", "its end is known", 120)
    assert lan.first.said("srun", "-w", NODE, "hostname") == NODE


def test_a_new_key_loses_no_job_there_and_it_joins_anew_by_one_line(lan: Lan) -> None:
    out = lan.first.folder / "work" / "key"
    job = lan.first.said(
        "sbatch", "--parsable", "-w", NODE, "-o", str(out), "--wrap", "sleep 25; echo done"
    )
    wait_until(lambda: _state(lan, job) == "RUNNING", "the job runs", 30)
    told = lan.first.said("key", "rotate", "--yes")
    assert f"On other machines: {NODE}." in told
    assert "./configure-environment --yes --no-build --join TOKEN" in told
    assert f"{NODE}: it has the key of before" in lan.first.said("node", "list")
    waits = lan.first.said("sbatch", "--parsable", "-w", NODE, "-o", "/dev/null", "--wrap", "true")
    assert _state(lan, waits) == "PENDING"
    doctor = json.loads(lan.first.dshpc("doctor", "--json").stdout)["findings"]
    assert "joined again" in " ".join(it["cause"] for it in doctor if it["state"] == "error")
    # By the name that it has, with nothing else said
    report = lan.second.configure("--join", lan.token("--once"), "--no-build").good().report
    assert [node["name"] for node in report["cluster"]["nodes"]] == [NODE]
    for each in (job, waits):
        wait_until(lambda each=each: _state(lan, each) == "COMPLETED", "it has ended", 60)  # type: ignore[misc]
    assert "Restarts=0" in lan.first.said("scontrol", "show", "job", job)
    assert out.read_text() == "done\n"


def test_one_that_was_away_as_the_key_was_changed_says_what_to_do(lan: Lan) -> None:
    """It failed before: nobody could have told it anything."""
    lan.second.said("down")
    assert f"On other machines: {NODE}." in lan.first.said("key", "rotate", "--yes")
    refused(lan.second.dshpc("up"), "was changed while this node was away", "--join TOKEN")
    assert f"{NODE}: it has the key of before" in lan.first.said("node", "list")
    lan.second.configure("--join", lan.token("--once"), "--no-build").good()
    assert lan.first.said("srun", "-w", NODE, "hostname") == NODE


def test_it_starts_anew_with_other_gpus_and_the_controller_knows(lan: Lan) -> None:
    lan.second.configure("--simulate", "t4:2", "--no-build").good()
    wait_until(
        lambda: "gpu:t4:2" in lan.first.said("node", "list"), "the node has registered anew", 60
    )
    wait_until(
        lambda: (
            lan.first.dshpc(
                "run", "--dry-run", "--gpu-type", "t4", "--gpus", "2", "--", "true"
            ).code
            == 0
        ),
        "what it offers is known",
        60,
    )


def test_its_machine_has_another_address_and_it_comes_back_by_itself(lan: Lan) -> None:
    job = lan.first.said(
        "sbatch", "--parsable", "-w", NODE, "-o", "/dev/null", "--wrap", "sleep 20"
    )
    wait_until(lambda: _state(lan, job) == "RUNNING", "the job runs", 30)
    moved = lan.second.move(address(77))
    wait_until(
        lambda: f"NodeAddr={moved.address} " in lan.first.said("scontrol", "show", "node", NODE),
        "it has registered from there",
        90,
    )
    assert lan.first.said("srun", "-w", NODE, "hostname") == NODE
    wait_until(lambda: _state(lan, job) == "COMPLETED", "its job has ended", 90)
    assert "Restarts=0" in lan.first.said("scontrol", "show", "job", job)


def test_one_of_a_user_without_a_range_of_ids_takes_his_jobs_alone(lan: Lan) -> None:
    """Nobody else's job is placed there, whatever it asks for, and the owner's is wherever there is room."""
    own = lan.third.top / "image.tar.gz"
    shutil.copy(lan.image, own)
    own.chmod(0o644)
    image = ("--image-file", str(own), "--simulate", "l4:1")
    joined = lan.third.configure("--join", lan.token("--once"), "--node-name", OWNED, *image).good()
    assert f"takes the jobs of user number {UID} alone" in " ".join(joined.report["notes"]), joined
    assert [node["state"] for node in joined.report["cluster"]["nodes"]] == ["idle"]
    lan.first.said("exec", "--root", "--", "dshpc-node", "add-user", OTHER, OTHER, "bob")
    for shown in (("node", "show", OWNED), ("node", "list"), ("status",)):
        assert f"{OWNED} takes the jobs of" in lan.first.said(*shown)
    # Another user's: refused where it names the node or its partition, or what no other node has
    nowhere = ("-o/dev/null", "-D/tmp")
    alone: dict[tuple[str, ...], str]
    alone = {("-w", OWNED): "takes the jobs of ada alone", ("-p", "owners"): "you own none"}
    for words in (*alone, ("--gres=gpu:l4:1",), ("-N3",)):
        for program in (("srun", *words, "id"), ("sbatch", *words, *nowhere, "--wrap=id")):
            told = lan.user(OTHER, *program)
            assert told.code != 0, told
            assert alone.get(words, "node configuration is not available") in told.stderr, told
    # What waits for the other nodes waits on, though this one is free
    whole = ("--exclusive", "--wrap", "sleep 300", *nowhere)
    held = [lan.user(OTHER, "sbatch", "--parsable", "-w", node, *whole).good().stdout.strip()
            for node in (NODE, f"{PREFIX}lan")]  # fmt: skip
    waits = lan.user(OTHER, "sbatch", "--parsable", "-o/dev/null", "-D/tmp", "--wrap=true")
    other = waits.good().stdout.strip()
    # The owner's begins there at once: its step, and what it submits, are his
    script = "srun -n1 id -u >/tmp/own && sbatch -w laptop -o/dev/null --wrap=true >>/tmp/own"
    job = lan.user(UID, "sbatch", "--parsable", "-o/dev/null", "-D/tmp", "--wrap", script).good()
    mine = job.stdout.strip()
    wait_until(lambda: _state(lan, mine) == "COMPLETED", "the owner's job ends", 90)
    assert "BatchHost=" + OWNED in lan.first.said("scontrol", "show", "job", mine)
    number, *_, child = lan.third.said("exec", "--root", "--", "cat", "/tmp/own").split()
    assert number == UID
    assert f"UserId=ada({UID})" in lan.first.said("scontrol", "show", "job", child)
    assert _state(lan, other) == "PENDING"
    assert lan.user(UID, "srun", "-w", OWNED, "-D/tmp", "hostname").good().stdout == f"{OWNED}\n"
    assert (
        lan.user(UID, "srun", "--gres=gpu:l4:1", "-D/tmp", "hostname").good().stdout == f"{OWNED}\n"
    )
    moved = lan.user(OTHER, "scontrol", "update", f"jobid={other}", "partition=owners")
    assert moved.code != 0, moved
    # Typed there it would be root's
    typed = lan.third.dshpc("srun", "-w", f"{PREFIX}lan", "true")
    assert "outside of a job nothing is submitted from node" in typed.stderr, typed
    # Root may move it, and the node itself refuses it then
    lan.first.said("scontrol", "update", f"jobid={other}", "partition=owners")
    wait_until(lambda: "Prolog" in lan.first.said("sinfo", "-h", "-n", OWNED, "-o", "%E"),
               "the node refuses it", 60)  # fmt: skip
    lan.first.said("scancel", *held, other)
    lan.first.said("node", "resume", OWNED)
    assert lan.user(UID, "srun", "-w", OWNED, "-D/tmp", "id", "-u").good().stdout == f"{UID}\n"


def _state(lan: Lan, job: str) -> str:
    words = lan.first.said("scontrol", "show", "job", job).split()
    return next(word.split("=")[1] for word in words if word.startswith("JobState="))


def test_the_controller_has_another_address_and_no_job_is_lost(lan: Lan) -> None:
    """The last one here: nodes join anew by one line. One job ends meanwhile, one goes on, and one waits."""
    go = lan.first.folder / "work" / "go"
    scripts = ("sleep 5", f"until [ -e {go} ]; do sleep 1; done", "true")
    words = ("sbatch", "--parsable", "-w", NODE, "-o", "/dev/null")
    ends, goes_on, waits = (
        lan.first.said(*words, *more, "--wrap", script)
        for script, more in zip(scripts, ((), (), ("--exclusive",)), strict=True)
    )
    for each in (ends, goes_on):
        wait_until(lambda each=each: _state(lan, each) == "RUNNING", "the job runs", 30)  # type: ignore[misc]
    lan.first.said("node", "token", "--revoke")
    there = replace(lan, first=lan.first.move(address(78)))
    there.first.said("restart", "--stop-jobs", "--yes")
    there.second.configure("--join", there.token("--once"), "--no-build").good()
    wait_until(lambda: _state(there, ends) == "COMPLETED", "its end is known", 60)
    assert [_state(there, each) for each in (goes_on, waits)] == ["RUNNING", "PENDING"]
    go.touch()
    for each in (goes_on, waits):
        wait_until(lambda each=each: _state(there, each) == "COMPLETED", "it has ended", 60)  # type: ignore[misc]
    for each in (ends, goes_on):
        assert "Restarts=0" in there.first.said("scontrol", "show", "job", each)
    assert there.first.said("srun", "-w", NODE, "hostname") == NODE


def test_slurmd_has_its_port_at_once_when_the_proof_is_over() -> None:
    """A thread that still waited at the socket would keep it, though it is closed."""
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    ports = ((1, port), (61001, 61999))
    facts = Facts("lab", "127.0.0.1", *ports, {}, {}, 0, "/lab", "24.11.5", 1, "0.1.0", "", 0.0)
    with client._listening("127.0.0.1", facts, has_joined=False) as reach:
        for each in (reach.slurmd_port, reach.srun_port):
            assert addresses.why_not_reached("127.0.0.1", each, 5.0) is None
        time.sleep(0.2)  # the threads wait for the next one
    for each in (reach.slurmd_port, reach.srun_port):
        listen("127.0.0.1", each).close()
