"""Terminals of the dashboard on a real cluster: a GPU, resized, joined again, ended with the page."""

from __future__ import annotations

import json
import re

import pytest

from tests.integration.cluster import Cluster, wait_until
from tests.integration.test_dashboard import Browser, dashboard
from tests.integration.web_socket import web_socket

pytestmark = pytest.mark.engines("builtin", "docker")

PROMPT = b"work"  # the folder, which the shell's prompt ends with


def _headers(browser: Browser) -> dict[str, str]:
    return {"Origin": f"http://127.0.0.1:{browser.port}", "Cookie": browser.cookie}


def _queue(cluster: Cluster) -> list[str]:
    return cluster.said("squeue", "-h", "-o", "%j").split()


def test_a_terminal_on_a_gpu(standard: Cluster) -> None:
    with dashboard(standard) as (browser, _):
        wait_until(lambda: "Open a shell" in browser.page("/run"), "its script is there", 60)
        place = browser.post("/terminals", gpus="1", time="10m")
        ours = _headers(browser)
        for other in ({**ours, "Origin": "http://evil.example"}, {**ours, "Cookie": ""}):
            with web_socket(browser.port, f"{place}/socket", other) as line:
                assert line.refused == 403
        with web_socket(browser.port, f"{place}/socket", ours) as line:
            line.send(json.dumps({"rows": 40, "columns": 111}))
            line.until(PROMPT)
            line.send(b"stty size; echo gpu-$CUDA_VISIBLE_DEVICES-; echo fir''st\n")
            said = line.until(b"first\r\n")
            assert "40 111" in said
            assert re.search(r"gpu-\d-", said)
        assert _queue(standard) == ["terminal"]
        # A page that is loaded again finds it; a second one takes it over
        with web_socket(browser.port, f"{place}/socket", ours) as line:
            line.until(b"first\r\n")
            with web_socket(browser.port, f"{place}/socket", ours) as second:
                line.until(b"never said")
                assert line.closed == 4001
                second.send(b"exit 3\n")
                second.until(b"never said")
                assert [json.loads(each) for each in second.words] == [{"ended": 3}]
        wait_until(lambda: _queue(standard) == [], "its job has ended")

        # One in a job that runs; the end of the dashboard ends it, and a new job's, and not that one
        place = browser.post("/run", command="sleep 300", gpus="1", act="submit")
        job = place.partition("?")[0]
        number = job.rpartition("/")[2]
        wait_until(lambda: standard.job_state(number)[0] == "RUNNING", "the job runs")
        place = browser.post(f"{job}/terminal")
        with web_socket(browser.port, f"{place}/socket", ours) as line:
            line.until(PROMPT)
            line.send(b"echo in-$SLURM_JOB_ID-\n")
            line.until(f"in-{number}-".encode())
        browser.post("/terminals", gpus="1")
        wait_until(lambda: _queue(standard).count("terminal") == 1, "another one runs")
    try:
        wait_until(lambda: "terminal" not in _queue(standard), "it ends with the dashboard")
        assert standard.job_state(number)[0] == "RUNNING"
    finally:
        standard.said("scancel", number)
