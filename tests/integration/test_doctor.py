"""`dshpc doctor` on a real engine and a real cluster, with faults that are really there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import (
    Cluster,
    Outcome,
    as_root,
    command,
    docker,
    environment,
    made,
    run,
    wait_until,
)

pytestmark = pytest.mark.engines("docker", why="the sample on Docker: its socket and container")

SOCKET = "/var/run/docker.sock"
STATE = "/var/lib/dshpc/state"
KEY = "/var/lib/dshpc/key/slurm.key"


@pytest.fixture(scope="module")
def cluster(standard: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With a place of its own for the lock of --fix, which is one for all of a user's clusters."""
    state = tmp_path_factory.mktemp("state")
    with made("doctor") as bare:
        cluster = replace(bare, env={**bare.env, "XDG_STATE_HOME": str(state)})
        cluster.configure("--simulate", "h100:2").good()
        yield cluster


def doctor(cluster: Cluster, *arguments: str) -> Outcome:
    """Asked once more where the machine is too busy to answer all of it in doctor's own seconds."""
    outcome = cluster.dshpc("doctor", "--json", *arguments)
    if outcome.report["unanswered"]:
        print(outcome.report["unanswered"])
        outcome = cluster.dshpc("doctor", "--json", *arguments)
    return outcome


def faults(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """The warnings and errors, by id."""
    found = outcome.report["findings"]
    return {item["id"]: item for item in found if item["state"] in ("warn", "error", "crashed")}


def root(outcome: Outcome) -> dict[str, Any]:
    """The one root cause; the other faults are folded under it."""
    found = faults(outcome)
    roots = [item for item in found.values() if item["caused_by"] is None]
    assert len(roots) == 1, [(item["id"], item["title"], item["evidence"]) for item in roots]
    assert {item["caused_by"] for item in found.values()} <= {None, roots[0]["id"]}
    return dict(roots[0])


def well(cluster: Cluster) -> None:
    outcome = doctor(cluster)
    assert (outcome.code, faults(outcome)) == (0, {}), outcome.stdout


def answered(cluster: Cluster) -> None:
    """A node that was just taken back is `idle*` until slurmctld has heard of it again."""
    wait_until(lambda: cluster.node()[1] == "idle", "the node has answered, and is idle")


def node(cluster: Cluster) -> str:
    return f"nodename={cluster.prefix}"


def test_nothing_is_wrong_with_a_cluster_as_it_is_made(cluster: Cluster) -> None:
    well(cluster)
    text = cluster.dshpc("doctor").good().stdout
    assert "No problem found" in text
    assert "The GPUs are SIMULATED" in text
    assert len(text.splitlines()) <= 14


def test_a_node_that_a_person_drained_is_left_to_him(cluster: Cluster) -> None:
    cluster.said("scontrol", "update", node(cluster), "state=drain", "reason=the fan is broken")
    try:
        told = root(doctor(cluster))
        assert "drained" in told["title"]
        assert "the fan is broken" in " ".join((told["cause"], *told["evidence"]))
        assert any("RESUME" in (fix["command"] or "").upper() for fix in told["fix"])
        cluster.dshpc("doctor", "--fix", "--yes")
        assert cluster.node()[1] == "drained"
        job = cluster.submit(script="true\n")
        waits = faults(doctor(cluster))["DSH-SL-023"]  # it is not given up: it only waits
        assert any("RESUME" in (fix["command"] or "") for fix in waits["fix"])
        assert not any("scancel" in (fix["command"] or "") for fix in waits["fix"])
    finally:
        cluster.said("scontrol", "update", node(cluster), "state=resume")
    wait_until(lambda: cluster.job_state(job)[0] == "COMPLETED", "it runs then", 60)
    answered(cluster)
    well(cluster)


def test_a_node_that_was_drained_by_our_own_doing_is_taken_back(cluster: Cluster) -> None:
    reason = "reason=gres/gpu count reported lower than configured (1 < 2)"
    docker("exec", "--user", "slurm", cluster.container,
           "scontrol", "update", node(cluster), "state=drain", reason)  # fmt: skip
    told = root(doctor(cluster))
    assert "drained" in told["title"]
    assert any(fix["automatic"] for fix in told["fix"])
    dry = cluster.dshpc("doctor", "--fix", "--dry-run")
    assert (cluster.node()[1], "scontrol" in dry.stdout + dry.stderr) == ("drained", True)
    nobody = cluster.dshpc("doctor", "--fix")
    assert (nobody.code, cluster.node()[1]) == (2, "drained"), "nobody is there to ask"
    fixed = cluster.dshpc("doctor", "--fix", "--yes")
    assert fixed.code == 0, fixed.stdout + fixed.stderr
    answered(cluster)
    well(cluster)


@contextmanager
def down(cluster: Cluster, service: str) -> Iterator[None]:
    place = f"/run/dshpc/services/{service}"
    cluster.said("s6-svc", "-wD", "-d", place)
    try:
        yield
    finally:
        cluster.said("s6-svc", "-wu", "-u", place)
        wait_until(lambda: cluster.exec("scontrol", "ping").code == 0, "slurmctld answers")
        answered(cluster)


@pytest.mark.parametrize("service", ["slurmctld", "slurmd"])
def test_a_daemon_that_is_down(cluster: Cluster, service: str) -> None:
    with down(cluster, service):
        told = root(doctor(cluster))
        assert service in told["title"]
        assert "stopped" in told["title"]
    well(cluster)


def test_jobs_whose_slurmstepd_was_killed(cluster: Cluster) -> None:
    """Slurm has them run for ever: one of sbatch, and one whose srun waits for its step."""
    batch = cluster.said(
        *("sbatch", "--parsable", "--mem=16", "--gres=gpu:1", "-o", "/dev/null"),
        *("--wrap", "exec sleep 600"),
    )
    srun = ("srun", "--mem=16", "--gres=gpu:1", "-J", "lost", "sleep", "601")
    client = subprocess.Popen(["docker", "exec", cluster.container, *srun])
    try:
        running = ("squeue", "-h", "-t", "R", "-o", "%i")
        wait_until(lambda: len(cluster.said(*running).split()) == 2, "both run")
        step = f"{cluster.said(*running, '-n', 'lost')}.0"
        titles = f"^slurmstepd: .({batch}.batch|{step})"
        wait_until(
            lambda: len(cluster.exec("pgrep", "-f", titles).stdout.split()) == 2, "both steps run"
        )
        cluster.said("pkill", "-9", "-f", titles)
        cluster.said("pkill", "-9", "-f", "^(/usr/bin/)?sleep 60[01]$")
        young = r"squeue -h -t R -o %M | grep -c '^0:'"
        wait_until(
            lambda: cluster.exec("sh", "-c", young).stdout.strip() == "0",
            "they are a minute old",
            90,
        )
        finding = root(doctor(cluster))
        assert finding["id"] == "DSH-SL-039"
        assert finding["evidence"] == [
            f"RUNNING for a minute or longer, without a slurmstepd: {batch}",
            f"RUNNING for a minute or longer, without a slurmstepd: steps of srun {step}",
        ]
        # What it says to do gives their GPUs back
        order = [fix["command"] for fix in finding["fix"]][-1].split()
        assert order[:2] == ["dshpc", "scancel"]
        cluster.dshpc(*order[1:]).good()
        wait_until(lambda: not cluster.said("squeue", "-h"), "the queue is empty")
        cluster.said("srun", "--immediate=20", "--mem=16", "--gres=gpu:2", "true")
    finally:
        cluster.exec("scancel", "--user=root")
        client.kill()
        client.wait(60)
    well(cluster)


def test_a_key_that_others_can_read(cluster: Cluster) -> None:
    cluster.said("chmod", "644", KEY)
    try:
        told = root(doctor(cluster))
        assert "key" in told["title"].lower()
        assert "read" in " ".join((told["title"], told["cause"], *told["evidence"]))
    finally:
        cluster.said("chmod", "600", KEY)
    well(cluster)


def test_an_edited_file_that_slurm_refuses(cluster: Cluster) -> None:
    path = cluster.folder / "config/slurm.conf"
    good = path.read_text()
    path.write_text(good.replace("SelectType=", "SelctType=") + "\n# mine\n")
    assert path.read_text() != good
    assert cluster.dshpc("reconfigure").code == 2
    told = faults(doctor(cluster))
    words = " ".join(
        word for item in told.values() for word in (item["title"], item["cause"], *item["evidence"])
    )
    assert "config/slurm.conf" in words
    assert "SelctType" in words
    assert "SelctType" in " ".join(told["DSH-FI-005"]["evidence"]), "in the cluster's own words"
    assert told["DSH-FI-001"]["caused_by"] == "DSH-FI-005"
    path.write_text(good)
    cluster.dshpc("reconfigure").good()
    well(cluster)


def test_a_state_volume_without_room(cluster: Cluster) -> None:
    pid = str(cluster.inspect()["State"]["Pid"])
    inside = ["nsenter", "--target", pid, "--mount"]
    run(as_root(*inside, "mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", STATE)).good()
    try:
        found = faults(doctor(cluster))
        assert any("state volume" in item["title"].lower() for item in found.values()), found
    finally:
        run(as_root(*inside, "umount", STATE)).good()
    well(cluster)


def test_a_gpu_of_the_users_file_that_is_gone(cluster: Cluster) -> None:
    path = cluster.folder / "config/gres.conf"
    good = path.read_text()
    line = "Name=gpu Type=h100 File=/dev/nvidia7 Flags=nvidia_gpu_env\n"
    path.write_text(f"# USER_CUSTOMIZED=true\n{good}{line}")
    try:
        docker("restart", cluster.container)
        assert cluster.exec("dshpc-node", "wait", "--timeout", "60").code == 2
        told = root(doctor(cluster))
        assert "/dev/nvidia7" in " ".join((told["cause"], *told["evidence"]))
    finally:
        path.write_text(good)
        cluster.dshpc("restart").good()
    well(cluster)


def test_a_gpu_that_is_lost_between_two_starts(cluster: Cluster) -> None:
    """Its device node is not handed to the next container, as where the host has lost the card."""
    path = cluster.folder / "docker-compose.yml"
    good = path.read_text()
    kept = [line for line in good.splitlines(keepends=True) if "/dev/nvidia1" not in line]
    assert len(kept) == len(good.splitlines()) - 1
    job = cluster.submit("--hold", "--gres=gpu:h100:2", "-J", "both", script="true")
    path.write_text("".join(kept))
    try:
        late = faults(doctor(cluster))["DSH-FI-002"]
        assert late["evidence"] == ["docker-compose.yml (edited)"], "it is not in force yet"
        cluster.dshpc("up").good()
        assert cluster.node() == ("gpu:h100:1", "idle")
        cluster.said("scontrol", "release", job)
        wait_until(lambda: cluster.job_state(job)[1] not in ("None", "JobHeldUser"), "it waits")
        found = faults(doctor(cluster))
        assert "DSH-FI-002" not in found
        told = found["DSH-SL-038"]
        assert "lost" in told["title"]
        assert any(" is gone: 2 of type h100 " in line for line in told["evidence"]), told
        assert "H100" in " ".join(told["evidence"])
        assert "Jobs that ask for it wait" in told["cause"]
        assert any("(both)" in line or "both" in line for line in told["evidence"]), told
        causes = {found[each]["caused_by"] for each in ("DSH-SL-038", "DSH-SL-020")}
        assert causes == {"DSH-FI-010"}, "this machine has it, and the file does not hand it over"
    finally:
        path.write_text(good)
        cluster.dshpc("up").good()
    cluster.completed(job)
    wait_until(lambda: cluster.node() == ("gpu:h100:2", "idle"), "the node is idle again")
    well(cluster)


def test_a_container_that_was_stopped_is_started_again(cluster: Cluster) -> None:
    docker("stop", cluster.container)
    told = root(doctor(cluster))
    assert "stopped" in told["title"]
    part = doctor(cluster, "--only", "DSH-SL-002")
    assert (part.code, faults(part)) == (3, {}), "nobody could look"
    assert part.report["left_out"] == [{"id": told["id"], "title": told["title"]}]
    fixed = cluster.dshpc("doctor", "--fix", "--yes")
    assert fixed.code == 0, fixed.stdout + fixed.stderr
    assert cluster.node() == ("gpu:h100:2", "idle")
    well(cluster)


def test_a_paused_container_goes_on(cluster: Cluster) -> None:
    docker("pause", cluster.container)
    told = root(doctor(cluster))
    assert "paused" in told["title"]
    assert [fix["command"] for fix in told["fix"]] == ["dshpc up"]
    cluster.dshpc("up").good()
    answered(cluster)
    well(cluster)


def test_an_engine_that_is_stopped(cluster: Cluster) -> None:
    hidden = f'mount --bind /dev/null {SOCKET}; exec "$@"'
    argv = as_root(
        "unshare", "-m", "sh", "-ec", hidden, "sh", *command("dshpc", "doctor", "--json")
    )
    done = subprocess.run(
        argv, cwd=cluster.folder, env=environment(), capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    outcome = Outcome(done.returncode, done.stdout, done.stderr)
    told = root(outcome)
    assert (outcome.code, told["section"]) == (2, "engine")
    assert "stopped" in told["title"] or "not running" in told["title"], told["title"]
    blocked = {item["blocked_by"] for item in outcome.report["findings"]}
    assert told["id"] in blocked


def test_inside_of_the_container(cluster: Cluster) -> None:
    report = json.loads(cluster.said("dshpc-node", "doctor", "--json"))
    states = {item["id"]: item["state"] for item in report["findings"]}
    assert (report["exit_code"], states["DSH-SL-002"]) == (0, "ok")


def test_a_report_is_made_on_the_host(cluster: Cluster) -> None:
    done = cluster.exec("dshpc-node", "doctor", "--bundle", "/tmp/report.tar.gz")
    assert done.code == 64
    assert "on the host: dshpc doctor --bundle FILE.tar.gz" in " ".join(done.stderr.split())
    assert cluster.exec("test", "-e", "/tmp/report.tar.gz").code != 0


def test_a_report_says_the_same_elsewhere(
    cluster: Cluster, tmp_path: Path, told_apart: Callable[[Mapping[str, Any]], object]
) -> None:
    path = tmp_path / "report.tar.gz"
    cluster.said("scontrol", "update", node(cluster), "state=drain", "reason=the fan is broken")
    try:
        here = doctor(cluster)
        cluster.dshpc("doctor", "--bundle", str(path))
        there = run(command("dshpc", "doctor", "--json", "--machine", str(path)), cwd=tmp_path)
        assert told_apart(there.report) == told_apart(here.report)
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        cluster.said("scontrol", "update", node(cluster), "state=resume")


@pytest.fixture
def told_apart() -> Callable[[Mapping[str, Any]], object]:
    def told(report: Mapping[str, Any]) -> object:
        keys = ("state", "blocked_by", "caused_by")
        return {item["id"]: tuple(item[key] for key in keys) for item in report["findings"]}

    return told
