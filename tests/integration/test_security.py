"""What a cluster promises about security (docs/security.md), each seen on a real one.

Shown elsewhere, and not again here: not privileged, the capabilities and no published port of the
container (test_main_path), a user's jobs and files are that user's (test_main_path), the key's mode
and two deployments' two keys (test_container), nothing of the site and no key in a layer (test_image),
a copied key is worthless after a change (test_key).
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import Cluster, Outcome, as_user, docker, made, run, wait_until
from tests.integration.engines import Engine
from tests.integration.test_key import KEY, secrets, with_a_copy

pytestmark = [
    pytest.mark.engines("docker", why="about rights in Docker's containers"),
    pytest.mark.timeout(600),
]
ADA, BOB = 42_510, 42_511
# CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, by their numbers in capability.h
SIX = sum(1 << number for number in (0, 1, 3, 5, 6, 7))
NEVER = "no-such-secret-anywhere"


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("security", engine=engine) as found:
        found.configure("--simulate", "h100:8").good()
        for uid in (0, ADA, BOB):
            own = found.work / str(uid)
            own.mkdir()
            os.chown(own, uid, uid)
        yield found


def user(cluster: Cluster, uid: int, *arguments: str) -> Outcome:
    """`dshpc ...` of an ordinary user of the host, in a folder of his own."""
    return as_user(uid, "dshpc", *arguments, cwd=cluster.work / str(uid))


def in_job(cluster: Cluster, uid: int, script: str) -> Outcome:
    return user(cluster, uid, "srun", "-Q", "--mem=16", "sh", "-c", script)


@pytest.fixture
def adas_job(cluster: Cluster) -> Iterator[str]:
    """A job of hers that runs until it is cancelled."""
    script = f"echo up; sleep 600 # {NEVER}"
    argv = ("sbatch", "--parsable", "--mem=16", "-o", "%j", "--wrap", script)
    job = user(cluster, ADA, *argv).good().stdout.strip()
    out = cluster.work / str(ADA) / job
    wait_until(lambda: out.exists() and out.read_text() == "up\n", "it runs")
    yield job
    cluster.said("scancel", job)
    wait_until(lambda: "idle" in cluster.node()[1], "it has ended")


# --- Rights


@pytest.mark.parametrize(("uid", "has"), [(0, SIX), (ADA, 0)])
def test_a_job_has_no_right_that_its_caller_has_not(cluster: Cluster, uid: int, has: int) -> None:
    text = in_job(cluster, uid, "cat /proc/self/status").good().stdout
    fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
    assert fields["NoNewPrivs"] == "1"
    assert fields["Uid"].split() == [str(uid)] * 4
    assert int(fields["CapBnd"], 16) == SIX
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == has
    assert int(fields["CapInh"], 16) == int(fields["CapAmb"], 16) == 0


def test_a_user_becomes_nobody_else(cluster: Cluster) -> None:
    for argv in (("sbatch", "--uid=0", "--wrap", "id"), ("srun", "--uid=0", "id", "-u")):
        refused = user(cluster, ADA, *argv)
        assert refused.code != 0, refused.stdout
        assert "0\n" not in refused.stdout
    for call in ("os.setuid(0)", f"os.setuid({BOB})", "os.setgid(0)", "os.setgroups([0])"):
        refused = in_job(cluster, ADA, f"exec python3 -c 'import os; {call}'")
        assert "PermissionError" in refused.stderr, call


def test_the_kiosk_gives_a_user_his_own_name_only(cluster: Cluster) -> None:
    """SACK makes tokens for whoever asks: the kernel tells it who that is."""
    ask = (
        "import base64, json, socket, struct\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect('/run/slurm/sack.socket')\n"
        "s.sendall(struct.pack('!HIIII', 0, 16, 64001, 0xFFFFFFFF, 0))\n"
        "part = s.recv(65536)[4:].split(b'.')[1]\n"
        "print(json.loads(base64.urlsafe_b64decode(part + b'=='))['uid'])\n"
    )
    assert user(cluster, ADA, "srun", "-Q", "python3", "-c", ask).good().stdout == f"{ADA}\n"


def test_a_user_reads_neither_key_nor_state_nor_the_daemons(cluster: Cluster) -> None:
    for what in (
        f"cat {KEY}",
        "cat /etc/slurm/slurm.jwks",
        "ls /var/lib/dshpc/key",
        "ls /var/lib/dshpc/state/slurmctld",
        "cat /proc/$(pidof slurmd)/environ",
        "head -c1 /proc/$(pidof slurmctld)/mem",
    ):
        refused = in_job(cluster, ADA, what)
        assert refused.code != 0, what
        assert "Permission denied" in refused.stderr, (what, refused.stderr)


# --- One user and another


def test_a_user_cannot_touch_anothers_job(cluster: Cluster, adas_job: str) -> None:
    for argv in (
        ("scancel", adas_job),
        ("scontrol", "hold", adas_job),
        ("scontrol", "requeue", adas_job),
        ("scontrol", "update", f"jobid={adas_job}", "name=mine"),
        ("srun", "--overlap", f"--jobid={adas_job}", "id"),
    ):
        refused = user(cluster, BOB, *argv)
        said = (refused.stdout + refused.stderr).lower()
        assert any(word in said for word in ("denied", "permission", "invalid user")), (argv, said)
    assert cluster.job_state(adas_job)[0] == "RUNNING"
    # she herself may
    user(cluster, ADA, "scontrol", "update", f"jobid={adas_job}", "name=hers").good()
    user(cluster, ADA, "scancel", adas_job).good()
    wait_until(lambda: cluster.job_state(adas_job)[0] == "CANCELLED", "she ended it")


def test_a_user_who_may_not_cancel_leaves_a_controller_that_answers(
    cluster: Cluster, adas_job: str
) -> None:
    """slurmctld 24.11.5 itself waits for its own lock then, for good: see container/durable.c."""
    for words in ((adas_job,), (f"--user={ADA}",), ("--account=any",)):
        user(cluster, BOB, "scancel", "--ctld", *words)
        asked = cluster.exec("timeout", "5", "scontrol", "show", "job", adas_job)
        assert "JobState=RUNNING" in asked.good().stdout, words


def test_a_user_cannot_read_anothers_script(cluster: Cluster, adas_job: str) -> None:
    ask = ("scontrol", "write", "batch_script", adas_job, "-")
    refused = user(cluster, BOB, *ask)
    assert "Invalid user id" in refused.stderr
    assert NEVER not in refused.stdout
    assert NEVER in user(cluster, ADA, *ask).good().stdout
    spool = in_job(cluster, BOB, "cat /var/spool/slurmd/job*/slurm_script")
    assert spool.code != 0
    assert NEVER not in spool.stdout
    assert NEVER in cluster.said("sh", "-c", "cat /var/spool/slurmd/job*/slurm_script")


def test_a_user_changes_nothing_of_the_cluster(cluster: Cluster) -> None:
    node = cluster.said("cat", "/run/dshpc/node")
    for argv in (
        ("scontrol", "reconfigure"),
        ("scontrol", "shutdown"),
        ("scontrol", "update", f"nodename={node}", "state=drain", "reason=x"),
        ("scontrol", "create", "reservation", "users=root", "nodes=ALL", "duration=1"),
    ):
        assert user(cluster, ADA, *argv).code != 0, argv
    assert "idle" in cluster.node()[1]
    for what in ("/etc/slurm/slurm.conf", "/run/dshpc/phase", "/run/dshpc/users/0", "/config/x"):
        assert in_job(cluster, ADA, f": >>{what}").code != 0, what


# --- The network


def test_without_the_key_the_network_reaches_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Even from the container's own network; with the key the same way leads in (test_key)."""
    own = base64.urlsafe_b64encode(os.urandom(64)).decode().rstrip("=")
    name = json.loads(cluster.said("cat", KEY))["keys"][0]["kid"]
    for kid in ("mine", name):
        entry = {"alg": "HS256", "kty": "oct", "kid": kid, "k": own, "use": "default"}
        forged = json.dumps({"keys": [entry]})
        refused = with_a_copy(cluster, forged, tmp_path / kid)
        assert refused.code not in (0, 99), refused.stdout
        assert "authentication" in refused.stderr, refused.stderr
    assert cluster.said("squeue", "-h", "--user=slurm") == ""


def listeners(cluster: Cluster) -> set[str]:
    """Addresses that something listens on, as /proc/net writes them."""
    lines = cluster.said("sh", "-c", "cat /proc/net/tcp /proc/net/tcp6").splitlines()
    rows = [line.split() for line in lines]
    return {row[1].rpartition(":")[0] for row in rows if len(row) > 3 and row[3] == "0A"}


def test_nothing_listens_but_on_the_loopback(cluster: Cluster) -> None:
    """srun listens too, for its steps: so while one runs. 127.0.0.11 is Docker's own name server."""
    go = cluster.work / "go"
    argv = ["srun", "--mem=16", "sh", "-c", f"echo up; until [ -e {go} ]; do sleep 0.1; done"]
    with subprocess.Popen(
        ["docker", "exec", cluster.container, *argv], stdout=subprocess.PIPE, text=True
    ) as step:
        try:
            assert step.stdout is not None
            assert step.stdout.readline() == "up\n"
            found = listeners(cluster)
        finally:
            go.touch()
        assert step.wait(60) == 0
    assert "0100007F" in found  # 127.0.0.1, its bytes turned round
    assert {address for address in found if not address.endswith("7F")} == set()


# --- Secrets


def spellings(secret: bytes) -> set[bytes]:
    """How a key could stand in a text."""
    plain, url = base64.b64encode(secret), base64.urlsafe_b64encode(secret)
    return {secret, plain.rstrip(b"="), url.rstrip(b"="), secret.hex().encode()}


def test_the_key_stands_nowhere_else(cluster: Cluster, tmp_path: Path) -> None:
    keys = set(secrets(cluster).values())
    changed = cluster.dshpc("key", "rotate", "--json").good().stdout
    keys |= set(secrets(cluster).values())
    assert len(keys) == 2
    image = cluster.inspect()["Image"]
    record = cluster.dshpc("record", str(tmp_path / "record"))
    assert record.code in (0, 1), record.stderr
    what = "/proc/[0-9]*/cmdline /proc/[0-9]*/environ"
    told = {
        "rotate": changed,
        "configure": cluster.configure("--simulate", "h100:8").good().stdout,
        "inspect": docker("inspect", cluster.container, image, f"{cluster.prefix}-key"),
        "history": docker("history", "--no-trunc", image),
        "processes": cluster.said("sh", "-c", f"cat {what} 2>/dev/null; true"),
    }
    for argv in (["status"], ["doctor"], ["detect"], ["gpus"], ["config", "show"]):
        outcome = cluster.dshpc(*argv, "--json")
        assert outcome.report, argv
        told[" ".join(argv)] = outcome.stdout + outcome.stderr
    logs = run(["docker", "logs", cluster.container])
    told["logs"] = logs.stdout + logs.stderr
    for path in [*cluster.folder.rglob("*"), *tmp_path.rglob("*")]:
        if path.is_file():
            told[str(path)] = path.read_bytes().decode("latin-1")
    assert str(cluster.folder / ".env") in told
    assert any("record" in name and name.endswith("machine.yaml") for name in told)
    found = {name: text.encode("latin-1", "replace") for name, text in told.items()}
    for secret in keys:
        for text in spellings(secret):
            assert [name for name, held in found.items() if text in held] == []


def test_the_key_lies_in_its_volume_only(cluster: Cluster) -> None:
    """The container's own files are searched byte by byte; its volumes are no part of them."""
    wanted = [text for secret in secrets(cluster).values() for text in spellings(secret)]
    file = subprocess.run(
        ["docker", "exec", cluster.container, "cat", KEY], capture_output=True, check=True
    ).stdout
    assert any(text in file for text in wanted)
    longest = max(map(len, wanted))
    with subprocess.Popen(
        ["docker", "export", cluster.container], stdout=subprocess.PIPE
    ) as export:
        assert export.stdout is not None
        read, tail = 0, b""
        while part := export.stdout.read(1 << 22):
            read, text = read + len(part), tail + part
            assert not [each for each in wanted if each in text]
            tail = text[-longest:]
    assert read > 50_000_000, "the container's files were not read"
