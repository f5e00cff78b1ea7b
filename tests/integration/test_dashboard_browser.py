"""The dashboard in Debian's Chromium: live, without a violation of axe-core, narrow, asking nobody else.

Chromium is installed where it is missing; Playwright and axe-core are fetched for the test alone.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from dshpc_setup.dashboard.browser_files import Package, Scripts
from dshpc_setup.machine.local import LocalMachine
from tests.integration.cluster import ROOT, Cluster, as_root, run, wait_until
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
