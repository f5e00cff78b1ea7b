"""`dshpc metrics`: read by promtool, by a strict parser, and scraped by Debian's own Prometheus."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as lenient

from dshpc_setup.cluster.gpu_jobs import ClusterGpus, Job
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import GpuDevice, Gpus, MigInstance
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.metrics import families, served
from dshpc_setup.metrics.look import Doctor, Seen
from dshpc_setup.probes.readings import PartReading, Reading, Readings
from dshpc_setup.settings import Settings
from dshpc_setup.slurm.gpus import SlurmGpu
from tests.integration.cluster import ROOT, Cluster, wait_until

pytestmark = pytest.mark.engines("docker", "builtin")

HOSTILE = 'a"b\\c\nd\te\x00\x1b[31m\u202e{}=,é' + "x" * 300
READING = Reading(40000, 81559, 93, 95, 512.5, 700.0, (), 1980, 2619, 123456789, 2, 1)
NODE = {
    "schema": "dshpc.node-metrics/1", "controller_up": True,
    "idle_gpus": [{"job": "17", "uuid": "GPU-0", "idle_s": 2700.0}],
    "methods": {"17": HOSTILE},
    "gpu_seconds": [
        {"user": HOSTILE, "type": "h100", "how": how, "seconds": 7.5} for how in ("held", "used")
    ],
    "queue": [
        {"state": "RUNNING", "partition": "debug", "user": "ada", "reason": "", "jobs": 1, "cpus": 4},
        {"state": "PENDING", "partition": "debug", "user": HOSTILE, "reason": "Resources", "jobs": 3,
         "cpus": 3},
    ],
    "nodes": [{"name": "node", "states": ["IDLE", "DRAIN"], "partitions": ["debug"], "cpus": 8,
               "cpus_alloc": 4, "memory_mib": 1000, "memory_alloc_mib": 10, "memory_free_mib": 900,
               "gpus": 2, "gpus_alloc": None},
              {"name": "gone", "states": ["DOWN", "NOT_RESPONDING"], "partitions": [], "cpus": 8}],
    "partitions": [{"name": "debug", "up": True, "nodes": 1, "cpus": 8}],
    "scheduler": {"slurm_sched_mean_cycle": 454, "slurm_bf_cycle_last": 3,
                  "slurm_slurmdbd_queue_size": 0},
    "services": {"slurmdbd": True, "mariadb": True, "slurmrestd": False},
}  # fmt: skip


def seen(cards: int = 2, jobs: int = 1) -> Seen:
    """GPUs of which the first is held by a job of a hostile name, and the last is cut."""
    devices = [
        GpuDevice(index, "nvidia", "NVIDIA H100", f"GPU-{index}", f"0000:{index:02x}:00.0", 81559,
                  slurm_type="h100", device_files=(f"/dev/nvidia{index}",))
        for index in range(cards)
    ]  # fmt: skip
    devices[-1] = replace(
        devices[-1], mig_mode="enabled", mig=(MigInstance("1g.10gb", "MIG-1", 9728, ("/dev/c1",)),)
    )
    readings = [READING] * (cards - 1) + [replace(READING, mig=(PartReading("MIG-1", 100, 9728),))]
    listed = [SlurmGpu("h100", gpu.device_files, gpu.uuid) for gpu in devices[:-1]]
    held = tuple(Job(f"{17 + at}", "ada", HOSTILE, 1, (at,)) for at in range(jobs))
    cluster = ClusterGpus("c", "ready", node="node", simulated=False, jobs=held,
                          listed=(*listed, SlurmGpu("1g.10gb", ("/dev/c1",), "MIG-1")))  # fmt: skip
    now = GpusNow(Gpus("present", devices=tuple(devices)),
                  Readings(tuple(readings), (("nvidia", "timeout"),)), cluster)  # fmt: skip
    doctor = Doctor((("DSH-GP-001", "error"),), {"0000:00:00.0": (79, 2)})
    return Seen(now, "cluster", False, time.time() - 1000, 0.2, NODE, 1, doctor)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Debian's prometheus and promtool."""
    folder = tmp_path_factory.mktemp("prometheus")
    fetch = "apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 download prometheus"
    script = f"{fetch} || {{ apt-get -qq update; {fetch}; }}; dpkg -x prometheus_*.deb ."
    subprocess.run(["sh", "-euc", script], cwd=folder, check=True, timeout=300)
    return folder / "usr" / "bin"


def strict(text: str) -> list[Metric]:
    """Raises ValueError for what is no OpenMetrics."""
    return list(openmetrics_parser.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def promtool(prometheus: Path, *words: str, given: str = "") -> str:
    """What it says, without DCGM's own names of labels."""
    done = subprocess.run([str(prometheus / "promtool"), *words], input=given, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    lines = f"{done.stdout}{done.stderr}".splitlines()
    return "\n".join(line for line in lines if "'snake_case' not 'camelCase'" not in line)


def test_what_a_job_is_called_breaks_no_line(prometheus: Path) -> None:
    snapshot = families.Snapshot(seen())
    text, newer = families.prometheus(snapshot), families.openmetrics(snapshot)
    assert promtool(prometheus, "check", "metrics", given=text) == ""
    names = {
        sample.labels.get("name")
        for family in lenient(text)
        for sample in family.samples
        if family.name == "dshpc_gpu_job_info"
    }
    assert len(names) == 1
    (name,) = names
    assert name is not None
    assert len(name) == 100
    assert name.startswith('a"b\\c\ufffdd\ufffde\ufffd\ufffd[31m')
    assert newer.endswith("# EOF\n")
    assert {family.name for family in strict(newer)} >= {"dshpc_up", "dshpc_gpu_seconds"}
    assert all(line.isprintable() for line in text.split("\n"))
    # A job stands nowhere but where it ends with the job
    told = [
        sample for family in lenient(text) for sample in family.samples if "job" in sample.labels
    ]
    assert {sample.name for sample in told} == {"dshpc_gpu_job_info"}


def test_names_are_those_of_dcgm_and_slurm() -> None:
    samples = {(sample.name, sample.labels.get("gpu"), sample.labels.get("UUID")): sample
               for family in lenient(families.prometheus(families.Snapshot(seen())))
               for sample in family.samples}  # fmt: skip
    wanted = {
        "DCGM_FI_DEV_GPU_UTIL": 93, "DCGM_FI_DEV_FB_USED": 40000, "DCGM_FI_DEV_FB_FREE": 41559,
        "DCGM_FI_DEV_GPU_TEMP": 95, "DCGM_FI_DEV_POWER_USAGE": 512.5, "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_MEM_CLOCK": 2619, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 123456789,
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 2, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 1,
        "DCGM_FI_DEV_XID_ERRORS": 79,
    }  # fmt: skip
    assert {name: samples[name, "0", "GPU-0"].value for name in wanted} == wanted
    assert samples["DCGM_FI_DEV_GPU_UTIL", "0", "GPU-0"].labels == {
        "gpu": "0", "UUID": "GPU-0", "modelName": "NVIDIA H100", "Hostname": "node",
    }  # fmt: skip
    assert samples["DCGM_FI_DEV_FB_USED", "1", "MIG-1"].value == 100
    assert samples["slurm_jobs_pending", None, None].value == 3
    assert samples["slurm_nodes_drain", None, None].value == 1


# Served


@pytest.fixture
def pages() -> Iterator[tuple[served.Pages, int]]:
    pages = served.Pages()
    server = served.opened(("127.0.0.1", 0), served.handler(pages, "secret-token-of-this-test"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pages.show(families.Snapshot(seen()))
    yield pages, server.server_address[1]
    server.shutdown()
    server.server_close()


def get(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, "", error.read().decode()


def test_a_client_gets_what_it_accepts(pages: tuple[served.Pages, int]) -> None:
    _, port = pages
    token = {"Authorization": "Bearer secret-token-of-this-test"}
    assert get(port)[0] == 401
    assert get(port, Authorization="Bearer secret-token-of-this-tesT")[0] == 401
    assert get(port, "/other", **token)[0] == 404
    code, kind, text = get(port, **token)
    assert (code, kind.split(";")[0], text.startswith("# HELP dshpc_up")) == (
        200,
        "text/plain",
        True,
    )
    accepts = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
    code, kind, text = get(port, Accept=accepts, **token)
    assert (code, kind.split(";")[0]) == (200, "application/openmetrics-text")
    assert strict(text)


def test_who_says_nothing_holds_nobody_up(pages: tuple[served.Pages, int]) -> None:
    _, port = pages
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
    try:
        assert get(port, Authorization="Bearer secret-token-of-this-test")[0] == 200
    finally:
        for each in idle:
            each.close()


def test_a_look_that_hangs_holds_up_no_scrape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a driver, an engine or slurmctld: what was seen last is told, and how old that is."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hangs, goes_on, looks = threading.Event(), threading.Event(), iter([seen()])

    def look(*_: object) -> Seen:
        if (found := next(looks, None)) is None:
            hangs.set()
            goes_on.wait(60)
        return found or seen()

    monkeypatch.setattr("dshpc_setup.metrics.look.look", look)
    monkeypatch.setattr("dshpc_setup.metrics.look.examine", lambda *_: Doctor())
    settings = Settings(metrics=f"127.0.0.1:{port}")
    project = SimpleNamespace(own=tmp_path, settings=lambda _: settings)
    serving = threading.Thread(
        target=served.serve, args=(LocalMachine(), project), kwargs={"until": goes_on.is_set}
    )
    serving.start()
    try:
        assert hangs.wait(30)
        for _ in range(3):
            began = time.monotonic()
            code, _, text = get(port)
            assert (code, time.monotonic() - began < 5) == (200, True)
            (at,) = (sample.value for family in lenient(text) for sample in family.samples
                     if sample.name == "dshpc_look_timestamp_seconds")  # fmt: skip
            assert time.time() - at >= 1000
    finally:
        goes_on.set()
        serving.join(60)


def test_who_says_little_keeps_nobody_out(pages: tuple[served.Pages, int]) -> None:
    _, port = pages
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            idle = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            idle.sendall(b"GET /met")
        token = {"Authorization": "Bearer secret-token-of-this-test"}
        assert [get(port, **token)[0] for _ in range(3)] == [200] * 3


def test_a_taken_port_is_named(pages: tuple[served.Pages, int]) -> None:
    _, port = pages
    with pytest.raises(DshpcError) as raised:
        served.opened(("127.0.0.1", port), served.handler(served.Pages(), None))
    assert f"127.0.0.1:{port}" in raised.value.brief


def shipped() -> list[str]:
    """Every query of the dashboard, and every alert."""
    board = json.loads((ROOT / "docs/metrics/dashboard.json").read_text())
    rules = yaml.safe_load((ROOT / "docs/metrics/alerts.yml").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return found + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_prometheus_scrapes_them_and_knows_every_query(
    pages: tuple[served.Pages, int], prometheus: Path, tmp_path: Path
) -> None:
    _, port = pages
    rules = ROOT / "docs/metrics/alerts.yml"
    assert "SUCCESS: " in promtool(prometheus, "check", "rules", str(rules))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [{
            "job_name": "dshpc",
            "authorization": {"credentials": "secret-token-of-this-test"},
            "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
        }],
    }  # fmt: skip
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    process = subprocess.Popen(
        [str(prometheus / "prometheus"), f"--config.file={tmp_path}/prometheus.yml",
         f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{own}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:

        def asked(query: str) -> list[Any]:
            words = urllib.parse.urlencode({"query": query})
            try:
                code, _, text = get(own, f"/api/v1/query?{words}")
            except OSError:
                return []
            assert code in (200, 503), f"{query}: {text}"
            return list(json.loads(text)["data"]["result"]) if code == 200 else []

        wait_until(lambda: bool(asked("dshpc_doctor_finding")), "a scrape", 90)
        assert {query: bool(asked(query)) for query in shipped()} == dict.fromkeys(shipped(), True)
        page = (ROOT / "docs/how-to/metrics.md").read_text()
        promised = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
        assert len(promised) > 20
        known = {result["metric"]["__name__"] for result in asked('{__name__=~".+"}')}
        assert promised - known == set()
    finally:
        process.terminate()
        process.wait(timeout=30)


# On a cluster


def test_a_cluster_tells_and_serves_them(standard: Cluster, prometheus: Path) -> None:
    """Also by the process that `up` starts, which `down` ends, and which a job's name cannot confuse."""
    text = standard.dshpc("metrics").good().stdout
    assert promtool(prometheus, "check", "metrics", given=text) == ""
    values = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in lenient(text)
        for sample in family.samples
    }
    assert values["dshpc_up",] == 1
    assert values["dshpc_gpus_simulated",] == 1
    assert values["slurm_nodes",] == 1
    assert any(key[0] == "dshpc_gpu_info" for key in values)
    assert not any(key[0] == "DCGM_FI_DEV_GPU_UTIL" for key in values), "nothing is measured"
    assert strict(standard.dshpc("metrics", "--openmetrics").good().stdout)
    refused = standard.dshpc("metrics", "--serve")
    assert (refused.code, "metrics: 127.0.0.1:9410" in refused.stderr) == (64, True)


def test_up_serves_and_down_ends_it(fresh: Cluster, prometheus: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        said = fresh.configure("--simulate", "h100:2", "--metrics", f"127.0.0.1:{port}").good()
        assert f"Metrics are not served at 127.0.0.1:{port}" in said.stderr + said.stdout
    fresh.dshpc("up", "--yes").good()
    wait_until(lambda: get(port)[0] == 200, "a first look", 120)
    job = fresh.submit("--gres=gpu:1", "-J", 'a"b\\c', script="sleep 600")
    wait_until(lambda: f'job="{job}"' in get(port)[2], "the job that holds a GPU", 120)
    (line,) = (line for line in get(port)[2].splitlines() if line.startswith("dshpc_gpu_job_info{"))
    assert 'name="a\\"b\\\\c"' in line
    fresh.said("scancel", job)
    wait_until(lambda: f'job="{job}"' not in get(port)[2], "its series ends with it", 120)
    whatever_a_job_is_called(fresh, prometheus)
    fresh.dshpc("down", "--yes").good()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def whatever_a_job_is_called(cluster: Cluster, prometheus: Path) -> None:
    """Its name is one label, one cell and one line: no sign of it ends a line, a text, or is obeyed."""
    signs = bytes([*range(1, 32), 127, *range(0x80, 0xA0), 0xFF, 0xC3])  # C1, and what is no UTF-8
    others = "\x85\u2028\u2029\u202e\u2066\"\\'{}|=,;`$(x)<b>%sé" + "y" * 200
    (cluster.work / "name").write_bytes(b"a" + signs + others.encode())
    submit = (
        'cd "$1"; sbatch --parsable --gres=gpu:1 -o /dev/null -J "$(cat name)" --wrap "sleep 600"'
    )
    job = cluster.said("sh", "-euc", submit, "sh", str(cluster.work))
    state = ("squeue", "-h", "-j", job, "-o", "%T")
    wait_until(lambda: cluster.said(*state) == "RUNNING", "it runs")

    text = cluster.dshpc("metrics").good().stdout
    assert promtool(prometheus, "check", "metrics", given=text) == ""
    newer = cluster.dshpc("metrics", "--openmetrics").good().stdout
    told = [
        sample.labels["name"]
        for family in (*lenient(text), *strict(newer))
        for sample in family.samples
        if sample.labels.get("job") == job
    ]
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0].startswith("a?")
    assert told[0].isprintable()
    assert len(told[0]) == 100

    (listed,) = (each for each in jobs_of(cluster) if each["id"] == job)
    assert listed["name"].startswith("a?")
    shown = "".join(cluster.dshpc(*words).good().stdout for words in
                    (("job", "list"), ("job", "show", job), ("gpus",), ("status",)))  # fmt: skip
    assert all(line.isprintable() for line in shown.split("\n"))
    lines = cluster.dshpc("job", "list").good().stdout.splitlines()
    assert sum(line.startswith(f"{job} ") for line in lines) == 1
    assert len(lines) == len(jobs_of(cluster)) + 1
    cluster.said("scancel", job)
    wait_until(
        lambda: any(each["id"] == job and each["use"] for each in jobs_of(cluster)), "it is kept"
    )
    (kept,) = (each for each in jobs_of(cluster) if each["id"] == job)
    assert kept["name"] == listed["name"]
    (row,) = json.loads(cluster.dshpc("usage", "--json").good().stdout)["rows"]
    assert row["gpu_seconds_held"] > 0
    for form in (("--csv",), ()):
        assert len(cluster.dshpc("usage", *form).good().stdout.splitlines()) == 2


def jobs_of(cluster: Cluster) -> list[dict[str, Any]]:
    told = json.loads(cluster.dshpc("job", "list", "--all", "--json").good().stdout)
    return list(told["jobs"])
