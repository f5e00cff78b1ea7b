"""`dshpc code`: VS Code in a job, used in Debian's Chromium; who has no token is asked for it."""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT, Cluster, run, wait_until
from tests.integration.test_dashboard_browser import python
from tests.integration.test_lab import Lab, asked, ended

__all__ = ["python"]

pytestmark = pytest.mark.engines("builtin", "docker")


@pytest.fixture
def code(standard: Cluster, tmp_path: Path) -> Iterator[Lab]:
    one = Lab(standard, tmp_path, "code", "login#")
    try:
        yield one
    finally:
        ended(one)


def test_an_editor_in_a_browser(code: Lab, python: Path, tmp_path: Path) -> None:
    """With the packages of a folder, which come first in its terminals."""
    (tmp_path / "requirements.txt").write_text("cowsay==6.1\n")
    port, token, said = code.dshpc("--env", str(tmp_path))
    (job,) = code.jobs()
    assert f"job {job} keeps running without this terminal" in said
    file = code.cluster.work / "from-code"
    client = str(ROOT / "tests" / "integration" / "code_client.py")
    address = f"http://127.0.0.1:{port}/login#{token}"
    env = {**os.environ, "PYTHONPATH": ""}
    seen = json.loads(
        run([str(python), client, address, str(file)], env=env, timeout_s=900).good().stdout
    )
    envs = re.escape(f"{code.cluster.work}/jobs/{os.getuid()}/.envs/")
    assert re.fullmatch(rf"[0-9]+ {job} [0-9]+ {envs}[0-9a-f]+/bin/cowsay\n", file.read_text())
    for saved in (f"{file}-saved.txt", "/var/lib/dshpc/home/root/from-code-in-home.txt"):
        saved_it = ("grep", "-qx", "typed in the editor", saved)
        wait_until(lambda it=saved_it: code.cluster.exec(*it).code == 0, saved)  # type: ignore[misc]
    assert seen["hosts"] == [f"127.0.0.1:{port}"]
    assert token not in seen["url"]
    # All but a module of Microsoft's own, which code-server does not have
    assert [url for url in seen["missing"] if "/vsda/" not in url] == []

    # Nobody is let in without its token, which no argument of a program holds
    assert asked(port, "/")[0] == 302
    assert entered(port, token[::-1]) == 200  # the question again
    assert entered(port, token) == 302
    assert token not in code.cluster.said("ps", "-eo", "args")

    again, same, _ = code.dshpc("--attach")
    assert (again, same) == (port, token)
    code.cluster.said("scancel", job)
    wait_until(lambda: not code.jobs(), "its job has ended")
    status, text = asked(port, "/")
    assert (status, "dshpc code" in text) == (503, True)


def test_what_nobody_uses_ends_and_says_so(standard: Cluster, tmp_path: Path) -> None:
    """Both kinds, at the least that each of them knows: JupyterLab looks once a minute."""
    kinds = (
        (Lab(standard, tmp_path), "1s", r"No kernels for \d+ seconds; shutting down"),
        (Lab(standard, tmp_path, "code", "login#"), "1m", r"Idle timeout of 61 seconds exceeded"),
    )
    begun = {}
    try:
        for one, linger, said in kinds:
            port, _, told = one.dshpc("--gpus", "0", "--linger", linger)
            assert f"It ends {linger} after its last use." in told
            begun[one.name] = (one, port, one.jobs(), said)
        for one, port, jobs, said in begun.values():
            wait_until(lambda one=one: not one.jobs(), "it has ended by itself", 240)  # type: ignore[misc]
            (job,) = jobs
            assert standard.job_state(job)[0] == "COMPLETED", one.name
            log = standard.dshpc("job", "logs", job).good().stdout
            assert re.search(said, log), log
            status, page = asked(port, "/")
            assert (status, f"dshpc {one.name}" in page) == (503, True)
    finally:
        for one, *_ in kinds:
            ended(one)


def entered(port: str, token: str) -> int:
    line = http.client.HTTPConnection("127.0.0.1", int(port), timeout=90)
    try:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        line.request("POST", "/login", f"password={token}", kind)
        return line.getresponse().status
    finally:
        line.close()
