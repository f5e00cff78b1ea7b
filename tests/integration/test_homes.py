"""What a job leaves in $HOME is there as long as the cluster is, whatever becomes of its container."""

from __future__ import annotations

import pytest

from tests.integration.cluster import Cluster, as_user, docker

pytestmark = pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")

ADA, BOB = 4001, 4002
HOMES = "/var/lib/dshpc/home"


def keeps(cluster: Cluster, uid: int, text: str | None = None) -> str:
    """What is in $HOME/result, asked by a job of that user; `text` is written before."""
    write = f"echo {text} >~/result; " if text else ""
    argv = ("srun", "sh", "-c", f"{write}cat ~/result; stat -c '%u %a' ~; pwd -P >/dev/null")
    if uid:
        return as_user(uid, "dshpc", *argv, cwd=cluster.work).good().stdout
    return cluster.dshpc(*argv, cwd=cluster.work).good().stdout


def test_homes_outlive_their_container(fresh: Cluster) -> None:
    fresh.configure("--simulate", "h100:1").good()
    users = {ADA: f"ada\n{ADA} 700\n", BOB: f"bob\n{BOB} 700\n", 0: "root\n0 700\n"}
    for uid, name in ((ADA, "ada"), (BOB, "bob"), (0, "root")):
        assert keeps(fresh, uid, name) == users[uid]

    def kept() -> None:
        for uid, said in users.items():
            assert keeps(fresh, uid) == said

    before = fresh.inspect()["Id"]
    fresh.dshpc("down").good()
    fresh.dshpc("up").good()
    assert fresh.inspect()["Id"] != before
    kept()
    fresh.configure("--simulate", "h100:2").good()  # another container, as of another image
    kept()
    fresh.dshpc("restart").good()
    kept()

    # nobody but their own user reads them, and nobody moves another's
    for line in (f"cat {HOMES}/user{ADA}/result", f"ls {HOMES}/user{ADA}",
                 f"mv {HOMES}/user{ADA} {HOMES}/mine", f"ln -s /etc {HOMES}/new"):  # fmt: skip
        tried = as_user(BOB, "dshpc", "srun", "sh", "-c", line, cwd=fresh.work)
        assert (tried.code != 0, "denied" in tried.stderr) == (True, True), line

    # a file that a batch job leaves there is found by its usual path as well
    job = fresh.submit("--wait", script="cp /etc/hostname ~/of-batch")
    assert fresh.job_state(job)[0] == "COMPLETED"
    assert fresh.said("sh", "-c", "ls ~/of-batch").endswith("/root/of-batch")

    refused = fresh.dshpc("destroy")
    assert refused.code == 2
    assert "homes" in refused.stderr
    gone = fresh.dshpc("destroy", "--yes").good()
    assert f"{fresh.prefix}-home" in gone.stdout
    assert f"{fresh.prefix}-home" not in docker("volume", "ls", "-q").split()


@pytest.mark.parametrize("link", ["/etc", f"{HOMES}/root"])
def test_no_link_is_taken_for_a_home(standard: Cluster, link: str) -> None:
    """One that stands there is never followed, nor given away; only root can have made it."""
    uid = 4003
    standard.said("ln", "-s", link, f"{HOMES}/user{uid}")
    owner = standard.said("stat", "-c", "%u %a", link)
    try:
        refused = as_user(uid, "dshpc", "srun", "true", cwd=standard.work)
        assert refused.code != 0
        assert "cannot be the home of" in refused.stderr
        assert standard.said("stat", "-c", "%u %a", link) == owner
    finally:
        standard.said("rm", f"{HOMES}/user{uid}")


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_homes_of_a_container_without_the_volume_are_taken_along(
    fresh: Cluster, stopped: bool
) -> None:
    """As of an older version, or of a compose file of one's own; a stopped one is replaced as well."""
    fresh.configure("--simulate", "h100:1").good()
    path = fresh.folder / "docker-compose.yml"
    ours = path.read_text()
    path.write_text(ours.replace(f'      - "home:{HOMES}"\n', "# mine\n"))
    fresh.dshpc("up").good()
    assert "is lost with this container" in fresh.dshpc("status").good().stdout
    said = {uid: keeps(fresh, uid, f"of-{uid}") for uid in (ADA, 0)}
    path.write_text(ours)
    if stopped:
        docker("stop", fresh.container)
    taken = fresh.configure().good()
    of_us = ("--filter", f"label=org.dshpc.project={fresh.folder}")
    assert docker("images", "-qa", *of_us) == "", "what was made to read a stopped one is gone"
    assert f"in the volume {fresh.prefix}-home now" in taken.stderr
    for uid, before in said.items():
        assert keeps(fresh, uid) == before
    if stopped:
        return
    # Another engine has none of it, and is told from this one by what the last start left
    note = fresh.folder / ".dshpc/engine.json"
    note.write_text(note.read_text().replace('"id": "', '"id": "not-'))
    fresh.dshpc("down").good()
    told = fresh.configure().good().stderr
    assert "This is another engine than the one of the last start" in told
    assert f"{fresh.prefix}-home" in told
    fresh.dshpc("down").good()
    assert "another engine" not in fresh.configure().good().stderr
