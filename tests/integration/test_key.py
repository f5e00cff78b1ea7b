"""`dshpc key rotate` on a real cluster: no job is lost, and the former key is worthless soon."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import Cluster, Outcome, made, run, wait_until
from tests.integration.engines import Engine

pytestmark = [pytest.mark.engines("docker", "builtin"), pytest.mark.timeout(900)]
KEY = "/var/lib/dshpc/key/slurm.key"
_ROTATIONS = 3

# Rotates, and ends by SIGKILL once it has written the file so many times
_CUT_OFF = """
import os, sys
sys.path.insert(0, "/opt/dshpc/lib")
from dshpc_setup.container import keys
from dshpc_setup.node import main
writes, write = [int(sys.argv[1])], keys.replace_bytes
def cut_off(*given, **more):
    if writes[0]:
        write(*given, **more)
        writes[0] -= 1
    if not writes[0]:
        os.kill(os.getpid(), 9)
keys.replace_bytes = cut_off
main.main(["rotate-key"])
"""

# A process with a copy of a key: a slurmctld of its own makes its tokens, and the commands of a client
# go to the cluster's. Both files lie in /evil.
_WITH_A_COPY = """
mkdir -p /etc/slurm /run/slurm /run/slurmctld /var/spool/slurmctld
chown slurm /run/slurmctld /var/spool/slurmctld
cp /evil/slurm.conf /evil/slurm.jwks /etc/slurm/
chown slurm /etc/slurm/slurm.jwks; chmod 600 /etc/slurm/slurm.jwks
mkdir /own; cp /etc/slurm/slurm.jwks /own/; chown slurm /own/slurm.jwks
printf '%s\\n' ClusterName=evil "SlurmctldHost=$(hostname)" SlurmUser=slurm AuthType=auth/slurm \\
    CredType=cred/slurm SlurmctldPort=7777 StateSaveLocation=/var/spool/slurmctld \\
    'NodeName=n Port=7778' 'PartitionName=p Nodes=n' ProctrackType=proctrack/linuxproc >/own/slurm.conf
slurmctld -D -f /own/slurm.conf >/own/log 2>&1 &
for _ in $(seq 600); do [ -S /run/slurmctld/sack.socket ] && break; sleep 0.1; done
[ -S /run/slurmctld/sack.socket ] || { cat /own/log; exit 99; }
ln -s /run/slurmctld/sack.socket /run/slurm/sack.socket
timeout 60 sbatch --parsable -H -D / -o /dev/null --uid=64030 --wrap true
"""


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("key", engine=engine) as found:
        # more GPUs than CPUs, so that jobs share those of a small machine
        found.configure("--simulate", "h100:8").good()
        yield found


Client = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    """Starts commands in the container; none of their clients outlives the test."""
    begun: list[subprocess.Popen[str]] = []

    def start(*argv: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            cluster.within(*argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        begun.append(child)
        return child

    yield start
    for child in begun:
        with child:
            child.kill()


def rotate(cluster: Cluster) -> dict[str, Any]:
    outcome = cluster.dshpc("key", "rotate", "--json").good()
    assert outcome.report["schema"] == "dshpc.key/1"
    assert outcome.report["container"] == cluster.container
    return outcome.report


def secrets(cluster: Cluster) -> dict[str, bytes]:
    """Name -> bytes of every key in the file."""
    text = cluster.said("cat", KEY)
    return {
        each["kid"]: base64.urlsafe_b64decode(each["k"] + "==") for each in json.loads(text)["keys"]
    }


def cut_off(cluster: Cluster, writes: int) -> None:
    done = cluster.exec("python3", "-IS", "-c", _CUT_OFF, str(writes))
    assert done.code == 128 + signal.SIGKILL, done


def _one_more(ran: Path, child: subprocess.Popen[str]) -> None:
    """A job that `child` begins after this has run; nothing where `child` has ended."""

    def count() -> int:
        return len(ran.read_text()) if ran.exists() else 0

    before = count()
    wait_until(lambda: child.poll() is not None or count() > before, "one more has run", 240)


def put_key(cluster: Cluster, content: bytes, mode: str = "600") -> None:
    """Replaces the key file by these bytes."""
    script = (
        f"cat >{KEY}.x && chown slurm:slurm {KEY}.x && chmod {mode} {KEY}.x && mv {KEY}.x {KEY}"
    )
    argv = cluster.within("sh", "-c", script, stdin=True)
    subprocess.run(argv, input=content, check=True, timeout=30)


def with_a_copy(cluster: Cluster, key: str, folder: Path) -> Outcome:
    """What somebody with this key file reaches, from the cluster's own network."""
    folder.mkdir()
    (folder / "slurm.jwks").write_text(key)
    (folder / "slurm.conf").write_text(
        "".join(
            f"{line}\n"
            for line in cluster.said("cat", "/etc/slurm/slurm.conf").splitlines()
            if not line.startswith(("CliFilterPlugins", "JobSubmitPlugins"))
        )
    )
    image = cluster.inspect()["Image"]
    argv = ["docker", "run", "--rm", "--network", f"container:{cluster.container}"]
    argv += ["--volume", f"{folder}:/evil:ro", "--entrypoint", "sh", image, "-c", _WITH_A_COPY]
    return run(argv, timeout_s=180)


@pytest.mark.engines("docker", why="the thief is in a container on the cluster's network")
def test_jobs_of_every_kind_outlive_it_and_a_copied_key_is_worthless_after(
    cluster: Cluster, client: Client, tmp_path: Path
) -> None:
    go = cluster.work / "go"
    until = f"until [ -e {go} ]; do sleep 0.2; done"
    small = ("--mem=16", "-n1")

    def begun(name: str) -> str:
        return f"touch {go}.begun.{name}; {until}"

    batch = cluster.submit(*small, script=f"{begun('batch')}; srun -n1 echo batch-step")
    salloc = f"srun -n1 true; {begun('salloc')}; srun -n1 echo salloc-step"
    alive = [
        client("srun", *small, "sh", "-c", f"{begun('srun')}; echo srun-end"),
        client("salloc", *small, "sh", "-c", salloc),
    ]
    # what runs outlives it; what is just being started may not (see below)
    wait_until(lambda: len(list(cluster.work.glob("go.begun.*"))) == 3, "three jobs run", 120)
    later = cluster.submit(*small, f"--dependency=afterok:{batch}", script="echo later")
    leaked = cluster.said("cat", KEY)
    assert with_a_copy(cluster, leaked, tmp_path / "before").good().stdout.strip().isdigit()

    # A daemon that takes up a key, as upon any `scontrol reconfigure`, may delay an srun that is about to
    # begin by a minute, or lose it (decision 0015): one for each time, no more, and what one says is known
    one = "timeout -k 5 100 srun -Q --mem=16 -n1 true"
    lost = f"[ $? -ge 124 ] && lost=$((lost + 1)) && [ $lost -le {_ROTATIONS} ]"
    short = client(
        "sh",
        "-c",
        f"until [ -e {go}.stop ]; do {one} && echo . >>{go}.ran || {{ {lost}; }} || exit; done",
    )
    ran, done, rotated = cluster.work / "go.ran", [], 0.0
    for _ in range(_ROTATIONS):
        done.append(rotate(cluster))
        rotated = time.time()
        _one_more(ran, short)
    (cluster.work / "go.stop").touch()
    said = short.communicate(timeout=240)[0]
    assert short.returncode == 0, said
    assert all("Unexpected missing socket error" in line for line in said.splitlines()), said

    assert len({each["key"] for each in done}) == _ROTATIONS
    end = datetime.fromisoformat(done[-1]["former_until"].replace("Z", "+00:00")).timestamp()
    assert 0 < end - rotated < 70
    time.sleep(max(0.0, end + 2 - time.time()))
    refused = with_a_copy(cluster, leaked, tmp_path / "after")
    assert refused.code not in (0, 99), refused.stdout
    assert "authentication" in refused.stderr, refused.stderr
    # the near miss: the same way in with the key of now
    now = cluster.said("cat", KEY)
    assert with_a_copy(cluster, now, tmp_path / "now").good().stdout.strip().isdigit()

    go.touch()
    ends = [child.communicate(timeout=60)[0] for child in alive]
    assert [child.returncode for child in alive] == [0, 0], ends
    assert "srun-end" in ends[0]
    assert "salloc-step" in ends[1]
    for job, text in ((batch, "batch-step"), (later, "later")):
        cluster.completed(job)
        assert cluster.output(job).strip() == text
    cluster.exec("scancel", "--state=PENDING", "--user=slurm").good()
    go.unlink()


def test_a_start_leaves_one_key(cluster: Cluster) -> None:
    rotate(cluster)
    before = secrets(cluster)
    assert len(set(before.values())) > 1
    cluster.dshpc("restart").good()
    after = secrets(cluster)
    assert len(set(after.values())) == 1
    current = json.loads(cluster.said("cat", KEY))["keys"][0]["kid"]
    assert after[current] == before[current]
    assert cluster.said("stat", "-c", "%a %U", KEY) == "600 slurm"
    assert cluster.said("srun", "hostname")


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_killed_at_every_step_it_leaves_a_cluster_that_works(cluster: Cluster, writes: int) -> None:
    cut_off(cluster, writes)
    cluster.said("srun", "-I60", "true")
    # one daemon alone reads what was left; the other has what it had
    pid = cluster.said("s6-svstat", "-o", "pid", "/run/dshpc/services/slurmd")
    cluster.said("kill", "-9", pid)
    wait_until(lambda: cluster.exec("srun", "-I2", "true").code == 0, "slurmd is back")
    rotate(cluster)
    cluster.said("srun", "-I60", "true")
    cut_off(cluster, writes)
    assert cluster.dshpc("restart", "--json").good().report["ready"] is True
    assert len(set(secrets(cluster).values())) == 1
    cluster.said("srun", "-I60", "true")


def test_a_controller_whose_socket_is_gone_is_restarted_for_it(cluster: Cluster) -> None:
    job = cluster.submit("--mem=16", script="sleep 600")
    wait_until(lambda: cluster.job_state(job)[0] == "RUNNING", "it runs")
    cluster.said("rm", "/run/slurmctld/sack.socket")
    rotate(cluster)
    assert cluster.job_state(job)[0] == "RUNNING"
    cluster.said("scancel", job)


def test_a_key_of_an_older_version_goes_on_and_can_be_changed(cluster: Cluster) -> None:
    bare = bytes(range(256)) * 4
    put_key(cluster, bare)
    assert cluster.dshpc("restart", "--json").good().report["ready"] is True
    assert set(secrets(cluster).values()) == {bare}
    assert cluster.said("srun", "hostname")
    rotate(cluster)
    assert cluster.said("srun", "hostname")
    assert secrets(cluster)[json.loads(cluster.said("cat", KEY))["keys"][0]["kid"]] != bare


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"x" * 1024, "644", "every user can read it"),
        (b"x" * 1024, "640", "its group can read it"),
        (b"x" * 15, "600", "holds only 15 bytes"),
        (b'{"keys": [{"kid": "a", "k": "', "600", "it is damaged"),
    ],
)
def test_a_key_of_wrong_mode_or_length_is_told_and_kept(
    cluster: Cluster, content: bytes, mode: str, words: str
) -> None:
    good = cluster.said("cat", KEY)
    put_key(cluster, content, mode)
    outcome = cluster.dshpc("restart", "--json")
    assert outcome.code == 2
    error = outcome.report["error"]
    assert words in error["brief"]
    assert any(f"dshpc exec --root -- rm {KEY}" in step for step in error["resolution"])
    assert cluster.inspect()["State"]["Running"]
    assert cluster.inspect()["RestartCount"] == 0
    assert cluster.said("stat", "-c", "%a %s", KEY) == f"{mode} {len(content)}"
    put_key(cluster, good.encode())
    assert cluster.dshpc("restart", "--json").good().report["ready"] is True


def test_a_cluster_that_is_down_says_so(cluster: Cluster) -> None:
    cluster.dshpc("down").good()
    outcome = cluster.dshpc("key", "rotate", "--json")
    assert outcome.code == 2
    assert "does not run" in outcome.report["error"]["brief"]
    cluster.dshpc("up").good()
    assert cluster.said("srun", "hostname")
