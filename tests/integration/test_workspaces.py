"""What one user can do with the workspaces of others: the attacks, by ordinary users, on a real cluster."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.jobs.request import Request
from dshpc_setup.jobs.workspace import LAUNCHER
from tests.integration.cluster import Cluster, Outcome, as_user, made, wait_until
from tests.integration.engines import Engine

pytestmark = [
    pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users"),
]
ADA, EVE = 42_610, 42_611
SECRET = "nobody-else-shall-read-this"


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("workspaces", engine=engine) as found:
        found.configure("--gpu", "none").good()
        found.work.chmod(0o1777)  # all users of the machine have files there
        yield found


def user(cluster: Cluster, uid: int, *words: str) -> Outcome:
    return as_user(uid, "dshpc", *words, cwd=cluster.folder)


def inside(cluster: Cluster, uid: int, script: str) -> Outcome:
    """A script of that user's in the container, as a job of theirs runs one."""
    who = ("setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups")
    return cluster.exec(*who, "--no-new-privs", "sh", "-c", script)


def ran(cluster: Cluster, uid: int, script: str, *options: str) -> dict[str, Any]:
    """A job of that user's that has ended: the answer to its submission."""
    told = user(cluster, uid, "run", "--json", *options, "--", "sh", "-c", script).good().report
    wait_until(
        lambda: not cluster.said("squeue", "-h", "-a", "-j", str(told["job_id"])), "it has ended"
    )
    return told


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_who_submits_first_owns_nothing_of_the_others(cluster: Cluster) -> None:
    """He renamed the others' workspaces away, and put forged ones in their place."""
    mine = Path(ran(cluster, EVE, "true")["workspace"])
    told = ran(cluster, ADA, f"echo {SECRET}; exit 3")
    hers, jobs = Path(told["workspace"]), cluster.work / "jobs"
    assert (jobs.stat().st_uid, mode(jobs) & 0o022) == (cluster.work.stat().st_uid, 0)
    assert (mine.parent, hers.parent) == (jobs / str(EVE), jobs / str(ADA))
    for folder, owner in ((hers, ADA), (hers.parent, ADA), (mine.parent, EVE)):
        assert (folder.stat().st_uid, mode(folder)) == (owner, 0o700)
    assert mode(hers / "output.log") == 0o600
    for attack in (
        f"mv {hers} {mine.parent}/taken",
        f"mv {hers.parent} {jobs}/away",
        f"mv {jobs} {jobs}.away",
        f"mkdir {jobs}/42699",
        f"ln -s {mine} {hers.parent}/forged",
        f"cat {hers}/output.log",
        f"ls {hers.parent}",
    ):
        assert inside(cluster, EVE, attack).code != 0, attack
    assert user(cluster, ADA, "job", "logs", told["job_id"]).good().stdout == f"{SECRET}\n"
    assert SECRET not in user(cluster, EVE, "job", "logs", told["job_id"]).stdout


def test_a_folder_of_workspaces_that_all_could_write_in_is_taken_over(cluster: Cluster) -> None:
    """As it was before: the first submitter's, 1777; and he has laid out what others will have."""
    jobs, before = cluster.work / "jobs", cluster.work / "jobs.before"
    jobs.rename(before)
    try:
        script = (
            f"mkdir -m 1777 {jobs} && cd {jobs} && mkdir -p {ADA}/.workflows && "
            f"chmod -R 777 {ADA} && printf '%s' '{_state('forged', 'x')}' >{ADA}/.workflows/forged.json"
        )
        inside(cluster, EVE, script).good()
        assert (
            user(cluster, ADA, "workflow", "status", "forged").code == 64
        )  # there is none of hers
        # It is put right as she submits from the host, or has a copy of an input made
        source = cluster.folder / "private.txt"
        source.write_text(SECRET)
        os.chown(source, ADA, ADA)
        source.chmod(0o600)
        words = ("--input", str(source), "--", "sh", "-c", 'cat "$INPUT_FILE"')
        told = user(cluster, ADA, "run", "--json", *words).good().report
        hers = Path(told["workspace"])
        assert (jobs.stat().st_uid, mode(jobs) & 0o022) == (cluster.work.stat().st_uid, 0)
        assert (hers.parent.stat().st_uid, mode(hers.parent)) == (ADA, 0o700)
        (copy,) = (hers / "inputs").iterdir()
        assert (copy.read_text(), mode(copy)) == (SECRET, 0o600)
        wait_until((hers / ".job/result.json").exists, "it has ended")
        assert (hers / "output.log").read_text() == SECRET
        assert {mode(path) & 0o077 for path in (hers, *hers.rglob("*"))} == {0}
        assert user(cluster, ADA, "workflow", "status", "forged").code == 64
    finally:
        wait_until(lambda: not cluster.said("squeue", "-h", "-a"), "nothing runs there")
        shutil.rmtree(jobs)
        before.rename(jobs)


def _state(name: str, workspace: str) -> str:
    ran = {"job_id": "1", "workspace": workspace, "fingerprint": "x", "needs": [], "reused": False}
    return json.dumps({
        "schema": "dshpc.workflow-state/1", "name": name, "file": "x", "submitted": 1.0,
        "jobs": {"a": ran},
    })  # fmt: skip


def test_a_forged_workspace_is_nobodys(cluster: Cluster) -> None:
    """Its place says whose it is, and its owner is another one: neither code nor log are believed."""
    told = ran(cluster, ADA, f"echo {SECRET}; exit 3")
    hers = Path(told["workspace"])
    aside = hers.with_name("aside")
    hers.rename(aside)
    shutil.copytree(aside, hers)
    (hers / ".job/result.json").write_text(json.dumps({"exit_code": 0, "signal": "SIGKILL"}))
    (hers / "output.log").write_text("forged\n")
    for path in (hers, *hers.rglob("*")):
        os.chown(path, EVE, EVE)
    hers.chmod(0o755)
    for uid in (ADA, 0):
        report = user(cluster, uid, "job", "show", told["job_id"], "--json").good().report
        (one,) = report["jobs"]
        assert (one["exit_code"], one["signal"], one["workspace"]) == (3, None, None)
        assert report["request"] is None
        for follow in ((), ("-f",)):
            said = user(cluster, uid, "job", "logs", told["job_id"], *follow)
            assert "forged" not in said.stdout, said
    shutil.rmtree(hers)
    aside.rename(hers)


@pytest.mark.parametrize("plain", [False, True])
def test_a_log_that_leads_elsewhere_is_not_read(cluster: Cluster, plain: bool) -> None:
    """Root looks at the log of a job whose user has put a link in its place."""
    secret = cluster.folder / "work" / "root-only"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    if plain:  # of sbatch alone: its log lies where its user says
        place = cluster.work / "eves"
        place.mkdir()
        os.chown(place, EVE, EVE)
        log = place / "out"
        argv = ("sbatch", "--parsable", "-D", str(place), "-o", str(log), "--wrap", "echo good")
        job = user(cluster, EVE, *argv).good().stdout.strip()
        wait_until(lambda: not cluster.said("squeue", "-h", "-a", "-j", job), "it has ended")
    else:
        told = ran(cluster, EVE, "echo good")
        job, log = told["job_id"], Path(told["workspace"]) / "output.log"
    assert cluster.dshpc("job", "logs", job).good().stdout == "good\n"
    inside(cluster, EVE, f"ln -sf {secret} {log}").good()
    for words in ((), ("-f",)):
        said = cluster.dshpc("job", "logs", job, *words)
        assert SECRET not in said.stdout + said.stderr
    assert "symbolic link" in cluster.dshpc("job", "logs", job).stderr
    # Another's file under the log's name, and a link in place of the folder
    log.unlink()
    log.write_text(SECRET)
    assert f"user {EVE}" in cluster.dshpc("job", "logs", job).stderr
    inside(cluster, EVE, f"mv {log.parent} {log.parent}.real; ln -s {log.parent}.real {log.parent}")
    said = cluster.dshpc("job", "logs", job)
    assert said.code == 2
    assert SECRET not in said.stdout


# The folder that workspaces lie in is his: he has put his own in the place of root's, and lays a file of
# his over each that is made there to see whom the file system gives it
_RACE = """
import os, sys
os.chdir(sys.argv[1])
while True:
    for at in range(4096):
        os.close(os.open(f"bait{at}", os.O_CREAT | os.O_WRONLY))
    baits = 4096
    while baits:
        for name in os.listdir("../real"):
            if name.startswith(".dshpc-"):
                try:
                    baits -= 1
                    os.rename(f"bait{baits}", f"../real/{name}")
                except OSError:
                    pass
"""


def test_no_task_of_root_runs_what_a_user_laid_there(cluster: Cluster) -> None:
    """7 of 192 tasks of an array of root's did, where the folder of workspaces was a user's."""
    here = cluster.work / "race"
    forged = here / "real"
    (forged / ".job").mkdir(parents=True)
    asked = Request("command", "race", ("sh", "-c", f"id -u >>{here}/stolen"), str(cluster.work))
    (forged / ".job/request.json").write_text(json.dumps(asked.to_json()))
    (here / "baits").mkdir()
    (here / "loop.py").write_text(_RACE)
    for path in (here, *here.rglob("*")):
        os.chown(path, EVE, EVE)
    (here / "stolen").touch()
    (here / "stolen").chmod(0o666)
    loop = f"python3 {here}/loop.py {here}/baits >/dev/null 2>&1 & echo $!"
    pid = inside(cluster, EVE, loop).good().stdout.strip()
    try:
        # As slurmstepd starts each: in the folder, by its path
        tasks = f"seq 192 | xargs -P 4 -I {{}} sh -c 'cd {forged} && exec {LAUNCHER}'"
        said = cluster.exec("sh", "-c", tasks, timeout_s=500).stderr
    finally:
        assert cluster.exec("kill", pid).code == 0, "he was there all the time"
    assert (here / "stolen").read_text() == ""
    assert said.count("is no workspace of this user's") == 192, said
    wait_until(lambda: cluster.exec("kill", "-0", pid).code != 0, "he is gone")
    shutil.rmtree(here)


def test_from_within_a_job_a_user_submits_where_the_folder_is_there(cluster: Cluster) -> None:
    """Nobody is root there: what root has made before is used."""
    asked = Request("command", "second", ("id", "-u"), str(cluster.work))
    request = cluster.work / "request.json"
    request.write_text(json.dumps(asked.to_json()))
    request.chmod(0o644)
    told = ran(cluster, ADA, f"dshpc-node job submit <{request}")
    answer = json.loads((Path(told["workspace"]) / "output.log").read_text())
    hers = Path(answer["workspace"])
    assert hers.parent == cluster.work / f"jobs/{ADA}"
    wait_until((hers / ".job/result.json").exists, "it has ended")
    assert (hers / "output.log").read_text() == f"{ADA}\n"


def test_the_setting_lets_the_users_group_read(cluster: Cluster) -> None:
    env = {
        "SUDO_UID": str(ADA), "SUDO_GID": str(ADA),
        "DSHPC_PASS_ENV": "DSHPC_WORKSPACE_ACCESS", "DSHPC_WORKSPACE_ACCESS": "group",
    }  # fmt: skip
    shared = replace(cluster, env=env)
    told = shared.dshpc("run", "--json", "--", "echo", "shared").good().report
    hers = Path(told["workspace"])
    wait_until((hers / ".job/result.json").exists, "it has ended")
    modes = {path.name: mode(path) for path in (hers, hers.parent, *hers.iterdir())}
    assert modes == {hers.name: 0o750, str(ADA): 0o750, "output.log": 0o640, ".job": 0o700}
    assert inside(cluster, EVE, f"cat {hers}/output.log").code != 0
    who = ("setpriv", "--reuid", str(EVE), "--regid", str(ADA), "--clear-groups", "cat")
    assert cluster.said(*who, f"{hers}/output.log") == "shared"
