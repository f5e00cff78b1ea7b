"""Metrics: what slurmctld's answers become, and what people's own words may be in them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dshpc_setup.container import metrics_answer
from dshpc_setup.errors import DshpcError
from dshpc_setup.metrics import families, served
from dshpc_setup.project.folder import project_at
from dshpc_setup.settings import addresses, load, texts
from tests.integration.shown import blocks

SDIAG = """\
*******************************************************
sdiag output at Thu Nov 26 10:54:30 2026 (1795690470)
Data since      Thu Nov 26 10:44:53 2026 (1795689893)
*******************************************************
Server thread count:  1
Agent queue size:     0
DBD Agent queue size: 12

Jobs submitted: 7
Jobs failed:    2

Main schedule statistics (microseconds):
\tLast cycle:   10
\tTotal cycles: 21
\tMean cycle:   454
\tLast queue length: 3

Backfilling stats
\tTotal backfilled jobs (since last slurm start): 5
\tTotal backfilled jobs (since last stats cycle start): 4
\tTotal cycles: 8
\tLast cycle when: Thu Nov 26 10:20:52 2026 (1795688452)
\tLast cycle: 9
"""
NODE = (
    "NodeName=n1 CPUAlloc=1 CPUEfctv=2 CPUTot=2 Gres=gpu:h100:2,shard:8 RealMemory=21695 AllocMem=10 "
    "FreeMem=N/A State=MIXED+DRAIN Partitions=debug,short OS=Linux 6.1 #1 SMP Reason=a=b c"
)


def test_what_sdiag_says_has_slurms_names() -> None:
    assert metrics_answer.scheduler(SDIAG) == {
        "slurm_server_thread_cnt": 1, "slurm_agent_queue_size": 0,
        "slurm_slurmdbd_queue_size": 12, "slurm_jobs_stats_submitted": 7,
        "slurm_jobs_stats_failed": 2, "slurm_sched_cycle_last": 10, "slurm_sched_cycle_cnt": 21,
        "slurm_sched_mean_cycle": 454, "slurm_schedule_queue_len": 3, "slurm_backfilled_jobs": 5,
        "slurm_bf_cycle_cnt": 8, "slurm_bf_cycle_last": 9,
    }  # fmt: skip


def test_a_node_is_read_as_far_as_it_says() -> None:
    (node,) = metrics_answer.nodes(f"{NODE}\nnothing\n")
    assert node == {
        "name": "n1", "states": ["MIXED", "DRAIN"], "partitions": ["debug", "short"], "cpus": 2,
        "cpus_alloc": 1, "memory_mib": 21695, "memory_alloc_mib": 10, "memory_free_mib": None,
        "gpus": 2, "gpus_alloc": None,
    }  # fmt: skip


def test_jobs_that_are_alike_are_one_row() -> None:
    rows = metrics_answer.queue(
        "PENDING|debug|ada|2|ReqNodeNotAvail, UnavailableNodes:n1\n"
        "PENDING|debug|ada|2|ReqNodeNotAvail, UnavailableNodes:n2|x\n"
        "RUNNING|debug|ada|4|None\nnothing\nRUNNING|debug|ada|many|None\n"
    )
    assert [(row["state"], row["reason"], row["jobs"], row["cpus"]) for row in rows] == [
        ("PENDING", "ReqNodeNotAvail", 2, 4), ("RUNNING", "", 1, 4),
    ]  # fmt: skip


def test_a_label_holds_no_sign_that_is_none() -> None:
    assert families.label("a\nb\x00\x1b[2J\u202e é") == "a\ufffdb\ufffd\ufffd[2J\ufffd é"
    assert families.label(None) == ""
    assert len(families.label("x" * 5000)) == 100


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("127.0.0.1:9410", ("127.0.0.1", 9410)),
        ("[::1]:8080", ("::1", 8080)),
        ("0.0.0.0:1024", ("0.0.0.0", 1024)),
    ],
)
def test_where_it_listens(text: str, wanted: tuple[str, int]) -> None:
    assert served.address(addresses.listener(text)) == wanted


@pytest.mark.parametrize("page", ["docs/how-to/metrics.md", "docs/how-to/usage.md"])
def test_the_settings_of_the_pages_are_some(page: str) -> None:
    """The rest is a configuration of Prometheus', whose keys tests/integration/test_metrics.py uses."""
    shown = [block.text for block in blocks(page) if block.language == "yaml"]
    values = [yaml.safe_load(text) for text in shown]
    settings = [
        load(yaml_text=text, yaml_name=page)
        for text, value in zip(shown, values, strict=True)
        if value.keys() & {"metrics", "release_idle"}
    ]
    wanted = ("127.0.0.1:9410", "off") if "metrics" in page else ("off", "2h")
    assert [(each.metrics, each.release_idle) for each in settings] == [wanted]
    known = {"metrics", "release_idle", "scrape_configs", "rule_files", "authorization"}
    assert {key for value in values for key in value} <= known


@pytest.mark.parametrize(
    "text", ["9410", "localhost:9410", "127.0.0.1:0", "127.0.0.1:70000", "x", "1.2.3.4"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9410"):
        addresses.listener(text)


def test_off_serves_nothing() -> None:
    assert addresses.listener("off") == "off"
    with pytest.raises(DshpcError, match="off"):
        served.address("off")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("off", 0.0), ("0", 0.0), ("90m", 5400.0), ("2h", 7200.0), ("1d", 86400.0)],
)
def test_times_of_settings(text: str, seconds: float) -> None:
    assert texts.age_s(text) == seconds


@pytest.mark.parametrize("text", ["0", "0h", "2", "soon", ""])
def test_release_idle_is_a_time_or_off(text: str) -> None:
    with pytest.raises(ValueError, match="2h"):
        texts.age_or_off(text)


def test_beyond_the_loopback_a_token_is_asked_for(tmp_path: Path) -> None:
    project = project_at(tmp_path)
    (tmp_path / ".dshpc").mkdir()
    assert served.token(project, "127.0.0.1") is None
    first = served.token(project, "0.0.0.0")
    assert first is not None
    assert len(first) > 30
    assert served.token(project, "10.0.0.1") == first
    path = tmp_path / served.TOKEN
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("short\n")
    with pytest.raises(DshpcError, match="no usable token"):
        served.token(project, "10.0.0.1")
