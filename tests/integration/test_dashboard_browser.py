"""The dashboard in Debian's Chromium: live, without a violation of axe-core, narrow, asking nobody else.

Chromium is installed where it is missing; Playwright and axe-core are fetched for the test alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup.dashboard.browser_files import Package, Scripts
from dshpc_setup.machine.local import LocalMachine
from tests.integration.cluster import ROOT, Cluster, as_root, as_user_argv, run, wait_until
from tests.integration.test_dashboard import dashboard

pytestmark = pytest.mark.engines("docker", why="pages are the same on each engine")

WORKFLOW = """\
jobs:
  first: {command: "true"}
  second: {command: sleep, args: ["300"], requires: [first]}
"""
PLAYWRIGHT = "playwright==1.65.2"
AXE = Package(
    "axe-core",
    "4.14.1",
    "MPL-2.0",
    "https://registry.npmjs.org/axe-core/-/axe-core-4.14.1.tgz",
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    {"axe.min.js": "package/axe.min.js"},
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that has Playwright, on a machine that has Chromium."""
    if shutil.which("chromium") is None:
        apt = ["apt-get", "-q", "-y", "--no-install-recommends", "install", "chromium"]
        if run(as_root(*apt), timeout_s=600).code != 0:
            run(as_root("apt-get", "-q", "update"), timeout_s=300).good()
            run(as_root(*apt), timeout_s=600).good()
    folder = tmp_path_factory.mktemp("playwright")
    uv = str(Path(sys.executable).with_name("uv"))
    run([uv, "venv", "--python", sys.executable, str(folder)]).good()
    found = folder / "bin" / "python"
    run([uv, "pip", "install", "--python", str(found), PLAYWRIGHT], timeout_s=300).good()
    return found


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("axe")
    scripts = Scripts((AXE,), (folder,))
    scripts.fetch(LocalMachine())
    assert scripts.names, "axe-core could not be fetched from npm's registry"
    path = folder / "axe.min.js"
    path.write_bytes(scripts.files["axe.min.js"])
    return path


def test_a_real_browser(standard: Cluster, python: Path, axe: Path) -> None:
    job = standard.dshpc("run", "--json", "--", "sh", "-c", "echo '<b>'; sleep 300").good().report
    number = str(job["job_id"])
    array = standard.submit("--array=0-2", script="sleep 300")
    file = standard.work / "pages.yaml"
    file.write_text(WORKFLOW)
    standard.dshpc("workflow", "run", str(file)).good()
    try:
        wait_until(lambda: standard.job_state(number)[0] == "RUNNING", "the job runs")
        with dashboard(standard) as (browser, token):
            browser.waits_for("/", "2 of 2 h100", 60)
            wait_until(lambda: "htmx.min.js" in browser.page("/"), "the scripts are there", 60)
            browser.waits_for("/health", "All checks", 60)
            address = f"http://127.0.0.1:{browser.port}/?token={token}"
            client = str(ROOT / "tests" / "integration" / "browser_client.py")
            env = {**os.environ, "PYTHONPATH": ""}
            done = run(
                [str(python), client, address, str(axe), number, array], env=env, timeout_s=400
            )
            seen = json.loads(done.good().stdout)
    finally:
        standard.said("scancel", number, array)
        standard.dshpc("workflow", "cancel", "pages")
    assert seen["violations"] == []
    assert seen["wide"] == []
    assert seen["complaints"] == []
    assert seen["hosts"] == [f"127.0.0.1:{browser.port}"]
    assert seen["address"] == f"http://127.0.0.1:{browser.port}/"
    assert seen["live"]
    assert seen["keyboard"] == ["To the content", "Overview", "Jobs"]


def test_two_users(standard: Cluster) -> None:
    """Each has a dashboard, and in it his own rights: Slurm's, and those of the files."""
    whole = standard.dshpc("run", "--json", "--", "sh", "-c", "echo mine; sleep 300").good().report
    theirs = str(whole["job_id"])
    as_other = as_user_argv(5001, "dshpc", "dashboard", "--no-browser")
    try:
        wait_until(lambda: standard.job_state(theirs)[0] == "RUNNING", "the job runs")
        with dashboard(standard) as (first, token), dashboard(standard, as_other) as (other, _):
            # Neither cookie nor token is good for both
            stranger = replace(other, port=first.port)
            assert stranger.ask("GET", "/").status == 401
            assert other.ask("GET", "/", None, Authorization=f"Bearer {token}").status == 401
            other.waits_for("/jobs", f'href="/jobs/{theirs}"', 60)
            assert "mine" in first.page(f"/jobs/{theirs}")
            assert "mine" not in other.page(f"/jobs/{theirs}")
            assert other.ask("GET", f"/jobs/{theirs}/raw/output.log").status == 409
            assert other.ask("GET", f"/jobs/{theirs}/log").status == 409
            csrf = re.search(r'name="csrf" value="([^"]+)"', other.page("/run"))
            assert csrf is not None
            answer = other.ask("POST", f"/jobs/{theirs}/cancel", {"csrf": csrf[1]})
            assert answer.status == 409, answer.text
            assert standard.job_state(theirs)[0] == "RUNNING"
            place = other.post("/run", command="sh -c 'id -u; sleep 300'", act="submit")
            number = place.partition("?")[0].rpartition("/")[2]
            other.waits_for(f"/jobs/{number}", "5001", 60)
            first.waits_for("/jobs", f'href="/jobs/{number}"', 60)
            assert first.post(f"/jobs/{number}/cancel") == f"/jobs/{number}?said=cancelled"
    finally:
        standard.said("scancel", theirs)
