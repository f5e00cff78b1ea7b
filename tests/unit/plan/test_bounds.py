"""How many tasks an array may have, and how many jobs Slurm knows at once."""

from __future__ import annotations

import re

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.plan import plan_cluster
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.settings import load
from tests.unit.plan.made import facts, gpu


@pytest.mark.parametrize(
    ("flags", "array", "jobs"),
    [
        ({}, 10_001, 100_000),
        ({"array_limit": "50001"}, 50_001, 250_005),
        ({"array_limit": "100"}, 100, 100_000),
        ({"job_limit": "500"}, 500, 500),  # an array is not larger than the queue
        ({"array_limit": "20", "job_limit": "500"}, 20, 500),
    ],
)
def test_limits(flags: dict[str, str], array: int, jobs: int) -> None:
    text = render_slurm(plan_cluster(facts(gpu(0)), load(flags=flags)))["slurm.conf"]
    assert re.findall(r"(?m)^Max(?:ArraySize|JobCount)=(\d+)$", text) == [str(array), str(jobs)]


def test_lines_of_ones_own_come_first() -> None:
    lines = "MaxArraySize=77\nMaxJobCount=99"
    plan = plan_cluster(facts(gpu(0)), load(flags={"slurm_conf_extra": lines}))
    text = render_slurm(plan)["slurm.conf"]
    assert re.findall(r"(?m)^Max(?:ArraySize|JobCount)=(\d+)$", text) == ["77", "99"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("array_limit", "0"),
        ("array_limit", "4000002"),
        ("array_limit", "1e6"),
        ("job_limit", "9"),
        ("job_limit", "10000001"),
        ("clean_after", "soon"),
        ("clean_after", "-1d"),
        ("longest_wait", "0"),
        ("longest_wait", "1"),
        ("longest_wait", "soon"),
        ("log_size", "100k"),
        ("log_size", "lots"),
    ],
)
def test_values_that_cannot_be(name: str, text: str) -> None:
    with pytest.raises(DshpcError) as caught:
        load(flags={name: text})
    assert name in caught.value.brief
