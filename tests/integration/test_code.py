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

pytestmark = pytest.mark.engines("builtin", why="how it is reached is as test_lab has it")


@pytest.fixture
def code(standard: Cluster, tmp_path: Path) -> Iterator[Lab]:
    one = Lab(standard, tmp_path, "code", "login#")
    try:
        yield one
    finally:
        ended(one)


def test_an_editor_in_a_browser(code: Lab, python: Path) -> None:
    port, token, said = code.dshpc()
    (job,) = code.jobs()
    assert f"job {job} keeps running without this terminal" in said
    file = code.cluster.work / "from-code"
    client = str(ROOT / "tests" / "integration" / "code_client.py")
    address = f"http://127.0.0.1:{port}/login#{token}"
    env = {**os.environ, "PYTHONPATH": ""}
    seen = json.loads(
        run([str(python), client, address, str(file)], env=env, timeout_s=900).good().stdout
    )
    assert re.fullmatch(rf"[0-9]+ {job}\n", file.read_text())
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


def entered(port: str, token: str) -> int:
    line = http.client.HTTPConnection("127.0.0.1", int(port), timeout=90)
    try:
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        line.request("POST", "/login", f"password={token}", kind)
        return line.getresponse().status
    finally:
        line.close()
