"""`dshpc lab`: JupyterLab in a job, used in Debian's Chromium; whoever has no token sees nothing."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dshpc_setup.notebooks import jupyter
from tests.integration.cluster import (
    ROOT,
    Cluster,
    Outcome,
    as_root,
    run,
    users_of_this_machine,
    wait_until,
)
from tests.integration.test_dashboard_browser import python

__all__ = ["python"]

pytestmark = pytest.mark.engines("docker", "builtin")


@dataclass
class Lab:
    """One that runs, or another server of that name; `page`: what stands before the token in its address."""

    cluster: Cluster
    home: Path
    name: str = "lab"
    page: str = "lab?token="
    user: str | None = None  # who else has it

    def run(self, *words: str) -> Outcome:
        """A command of `dshpc`, by its user."""
        # Its own home for what it notes, and the caches of this one
        cache = str((Path.home() if self.user is None else self.home) / ".cache")
        env = {
            "HOME": str(self.home),
            "XDG_CACHE_HOME": cache,
            "DSHPC_DIR": str(self.cluster.folder),
        }
        become: list[str] = []
        if self.user is not None:
            group = str(Path("/var/run/docker.sock").stat().st_gid)
            ids = ("--reuid", self.user, "--regid", self.user, "--groups", group)
            become = as_root("setpriv", *ids, "--")
        argv = [*become, str(ROOT / "dshpc"), *words]
        return run(argv, env=env, timeout_s=300, cwd=self.cluster.work)

    def dshpc(self, *words: str) -> tuple[str, str, str]:
        """Its port, its token, and what was said."""
        done = self.run(self.name, *words).good()
        page = re.escape(self.page)
        found = re.fullmatch(rf"http://127\.0\.0\.1:(\d+)/{page}([0-9a-f]{{48}})\n", done.stdout)
        assert found is not None, done
        return found[1], found[2], done.stderr

    @property
    def pid(self) -> int:
        (path,) = (self.home / ".local/state/dshpc").glob(f"{self.name}-*.json")
        return int(json.loads(path.read_text())["pid"])

    def jobs(self) -> list[str]:
        mine = () if self.user is None else ("-u", self.user)
        lines = self.cluster.said("squeue", "-h", *mine, "-o", "%i %j").splitlines()
        return [line.split()[0] for line in lines if line.endswith(f" {self.name}")]


@pytest.fixture
def lab(standard: Cluster, tmp_path: Path) -> Iterator[Lab]:
    one = Lab(standard, tmp_path)
    try:
        yield one
    finally:
        ended(one)


def ended(one: Lab) -> None:
    for job in one.jobs():
        one.cluster.said("scancel", job)
    wait_until(lambda: not one.jobs(), "its job has ended")
    if list((one.home / ".local/state/dshpc").glob(f"{one.name}-*.json")):
        os.kill(one.pid, signal.SIGTERM)


def asked(port: str, path: str, method: str = "GET") -> tuple[int, str]:
    line = http.client.HTTPConnection("127.0.0.1", int(port), timeout=90)
    try:
        line.request(method, path)
        answer = line.getresponse()
        return answer.status, answer.read().decode()
    finally:
        line.close()


GET = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


def test_a_notebook_in_a_browser(lab: Lab, python: Path) -> None:
    port, token, said = lab.dshpc()
    (job,) = lab.jobs()
    assert f"job {job} keeps running without this terminal" in said
    file = lab.cluster.work / "from-the-terminal"
    client = str(ROOT / "tests" / "integration" / "lab_client.py")
    address = f"http://127.0.0.1:{port}/lab?token={token}"
    env = {**os.environ, "PYTHONPATH": ""}
    seen = json.loads(
        run([str(python), client, address, str(file)], env=env, timeout_s=400).good().stdout
    )
    assert re.fullmatch(rf"GPU [0-9]+ job {job}", seen["cell"])
    assert seen["hosts"] == [f"127.0.0.1:{port}"]
    home = "/var/lib/dshpc/home/root"
    assert lab.cluster.said("cat", f"{home}/from-the-cell") == seen["cell"]
    wait_until(lambda: file.exists() and file.read_text().strip().isdecimal(), "srun has run")
    assert (lab.cluster.work / "Untitled.ipynb").is_file()

    # Nobody is let in without its token, which no argument of a program holds
    assert asked(port, "/api/contents")[0] == 403
    assert asked(port, f"/api/contents?token={token}")[0] == 200
    assert token not in lab.cluster.said("ps", "-eo", "args")

    # Who forwards may go: the next call does it again, on the same port, to the same job
    os.kill(lab.pid, signal.SIGKILL)
    again, same, said = lab.dshpc("--attach")
    assert (again, same) == (port, token)
    assert asked(port, f"/api/status?token={token}")[0] == 200
    assert lab.jobs() == [job]
    before = lab.pid
    assert lab.dshpc()[2].startswith("dshpc: it runs already")
    assert lab.pid == before

    lab.cluster.said("scancel", job)
    wait_until(lambda: not lab.jobs(), "its job has ended")
    status, text = asked(port, "/lab")
    assert (status, "dshpc lab" in text) == (503, True)


@pytest.fixture
def two(standard: Cluster) -> Iterator[tuple[Lab, Lab]]:
    """Of two ordinary users of this machine, who may use Docker."""
    names = ("dshpc-lab-ada", "dshpc-lab-bob")
    labs = tuple(Lab(standard, Path("/home", name), user=name) for name in names)
    with users_of_this_machine(*names):
        try:
            yield labs[0], labs[1]
        finally:
            for one in labs:
                ended(one)


@pytest.mark.engines("docker", why="a cluster of the built-in engine is one user's")
def test_nobody_else_is_led_to_it(two: tuple[Lab, Lab]) -> None:
    """Two at once: each gets his own, and nothing of the other's."""
    ada, bob = two
    refused = bob.run("lab", "--attach")
    assert refused.code == 2
    assert "There is no job lab of yours" in refused.stderr
    port, token, _ = ada.dshpc("--gpus", "0")
    other, his, _ = bob.dshpc("--gpus", "0")
    assert (port, token) != (other, his)
    (job,) = ada.jobs()
    assert bob.jobs() not in ([], [job])
    for at, given, code in (
        (port, his, 403),
        (other, token, 403),
        (port, token, 200),
        (other, his, 200),
    ):
        assert asked(at, f"/api/status?token={given}")[0] == code
    status, text = asked(port, f"/api/kernels?token={token}", method="POST")
    assert status == 201
    kernel = json.loads(text)["id"]

    # Neither her socket, token, home, packages, kernels nor processes are for another user
    cluster, uid = ada.cluster, int(ada.cluster.said("id", "-u", str(ada.user)))
    runtime = jupyter.variables(token, None)["JUPYTER_RUNTIME_DIR"]
    process = cluster.said("pgrep", "-f", f"[i]pykernel.*kernel-{kernel}").strip()
    assert process.isdecimal()
    (state,) = cluster.said("sh", "-c", f"echo ~{ada.user}/.local/state/dshpc-ssh*").split()
    for look in (
        f"cat {state}/lab.sock",
        f"cat {state}/lab.json",
        f"ls {ada.home}/.local/state/dshpc",
        f"ls {cluster.work}/jobs/{uid}/.envs",
        f"cat {runtime}/kernel-{kernel}.json",
        f"cat /proc/{process}/environ",
        f"ls /proc/{process}/root/",
    ):
        tries = bob.run("exec", "--", *look.split())
        assert tries.code != 0, look
        assert "Permission denied" in tries.stderr, tries
    for place in (f"{state}/lab.json", f"{runtime}/kernel-{kernel}.json"):
        cluster.said("test", "-s", place)
    kills = bob.run("exec", "--", "scancel", job)
    assert "Access/permission denied" in kills.stderr
    # Of her kernel's channels none is a port, from which anybody could read what it prints. The one that it
    # opens takes what processes of its own print, with a key, and tells nothing
    channels = json.loads(cluster.said("cat", f"{runtime}/kernel-{kernel}.json"))
    assert channels["transport"] == "ipc"
    look = f"cat /proc/{process}/net/tcp; ls -l /proc/{process}/fd"
    ports = ada.run("exec", "--", "sh", "-c", look).good().stdout
    inodes = set(re.findall(r"socket:\[(\d+)\]", ports))
    lines = [line.split() for line in ports.splitlines()]
    listening = [line for line in lines if line[3:4] == ["0A"] and line[9] in inodes]
    assert inodes
    assert len(listening) <= 1
    # Bob's programs are not joined to her port, nor hers to his: each would be a program in the cluster
    for at, one, told in ((port, bob, "403"), (other, ada, "403"), (port, ada, "200")):
        get = f"http://127.0.0.1:{at}/api"
        ids = ("--reuid", str(one.user), "--regid", str(one.user), "--clear-groups", "--")
        said = run(as_root("setpriv", *ids, sys.executable, "-c", GET, get)).good().stdout
        assert said.split()[0] == told, said
    # Whoever forwards on the machine is the user's
    tries = run(as_root("setpriv", "--reuid", str(bob.user), "--clear-groups", "--",
                        "kill", str(ada.pid)))  # fmt: skip
    assert (tries.code, "not permitted" in tries.stderr) == (1, True)
    assert asked(port, f"/api/status?token={token}")[0] == 200
