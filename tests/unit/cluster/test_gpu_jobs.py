"""What Slurm says of GPUs and jobs, in texts that a real cluster of made-up GPUs gave."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dshpc_setup.cluster.gpu_jobs import (
    Job,
    count_gpus,
    jobs_of,
    parse_facts,
    parse_held,
)
from dshpc_setup.facts import Gpus
from dshpc_setup.slurm import holders
from dshpc_setup.slurm.gpus import SlurmGpu
from dshpc_setup.slurm.gpus import parse as parse_listed

# gres.conf held t4 (nvidia1) between the two h100: slurmd has the types together
# ruff: noqa: E501  (as they were printed)
MIXED = """\
slurmd: warning: _prepare_run_dir: /run/slurm exists but is owned by root, not SlurmUser
slurmd-node: Gres Name=gpu Type=h100 Count=1 Index=0 ID=7696487 File=/dev/nvidia0 Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML
slurmd-node: Gres Name=gpu Type=h100 Count=1 Index=2 ID=7696487 File=/dev/nvidia2 Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML
slurmd-node: Gres Name=gpu Type=t4 Count=1 Index=1 ID=7696487 File=/dev/nvidia1 Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML
"""
RANGE = "slurmd-n: Gres Name=gpu Type=h100 Count=2 Index=0 ID=7696487 File=/dev/nvidia[0-1] Links=(null) Flags=HAS_FILE"
MIG = "slurmd-n: Gres Name=gpu Type=3g.40gb Count=1 Index=13 ID=7696487 File=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap12,/dev/nvidia-caps/nvidia-cap13 Links=(null) Flags=HAS_FILE,HAS_TYPE,ENV_NVML"


def unset(number: int = 0) -> dict[str, Any]:
    return {"set": False, "infinite": False, "number": number}


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def said(gres: list[str], nodes: tuple[str, ...] = ("node",), **more: Any) -> dict[str, Any]:
    """A job as `squeue --json` of Slurm 24.11 has it, without what is not read."""
    return {
        "job_id": 31,
        "job_state": ["RUNNING"],
        "array_job_id": number(0),
        "array_task_id": unset(),
        "het_job_id": number(0),
        "het_job_offset": number(0),
        "user_id": 1000,
        "user_name": "anna",
        "name": "train",
        "gres_detail": gres,
        "job_resources": {"nodes": {"allocation": [{"index": 0, "name": name} for name in nodes]}},
        **more,
    }


def jobs(*items: dict[str, Any], node: str | None = "node") -> tuple[Job, ...]:
    return jobs_of(holders.parse(json.dumps({"jobs": list(items), "errors": []})), node)


def test_slurmds_own_order() -> None:
    assert [(gpu.slurm_type, gpu.files) for gpu in parse_listed(MIXED)] == [
        ("h100", ("/dev/nvidia0",)),
        ("h100", ("/dev/nvidia2",)),
        ("t4", ("/dev/nvidia1",)),
    ]


def test_a_line_with_several_gpus_and_one_with_several_files() -> None:
    assert [gpu.files for gpu in parse_listed(RANGE)] == [("/dev/nvidia0",), ("/dev/nvidia1",)]
    (part,) = parse_listed(MIG)
    assert part == SlurmGpu(
        "3g.40gb",
        ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"),
    )


def test_other_gres_and_no_type() -> None:
    text = (
        "slurmd: Gres Name=mps Count=100 File=/dev/nvidia0\n"
        "slurmd: Gres Name=gpu Type=(null) Count=2 ID=1 Links=(null) UniqueId=MIG-1\n"
        "slurmd: Gres Name=gpu Type=a Count=0\n"
    )
    assert parse_listed(text) == (SlurmGpu(None, (), "MIG-1"), SlurmGpu(None, (), "MIG-1"))


@pytest.mark.parametrize(
    ("text", "places", "count"),
    [
        ("gpu:h100:1(IDX:0)", (0,), 1),
        ("gpu:t4:1(IDX:2),gpu:h100:1(IDX:1)", (1, 2), 2),
        ("gpu:h100:3(IDX:0,2-3),gpu:t4:0(IDX:)", (0, 2, 3), 3),
        ("gpu:1g.10gb:2(IDX:1-2)", (1, 2), 2),
        ("gpu:2(IDX:0-1)", (0, 1), 2),
        ("gpu:(null):2(IDX:0-1)", (0, 1), 2),
        ("gpu:h100:1(IDX:N/A)", (), 1),
        ("mps:h100:50(IDX:0),license:2", (), 0),
        ("gpu:h100:1(IDX:9-2)", (), 1),
        ("", (), 0),
    ],
)
def test_what_a_job_holds(text: str, places: tuple[int, ...], count: int) -> None:
    assert (parse_held(text), count_gpus(text)) == (places, count)


def test_a_job_and_what_its_user_called_it() -> None:
    name = "train it, well=1 UserId=root(0) GRES=gpu:8(IDX:0-7)"
    assert jobs(said(["gpu:h100:1(IDX:0)"], name=name)) == (Job("31", "anna", name, 1, (0,)),)


def test_jobs_without_gpus_are_none_of_ours() -> None:
    assert jobs(said([]), said([""]), said(["mps:10"])) == ()


def test_ids_as_squeue_shows_them() -> None:
    gres = ["gpu:t4:1(IDX:2)"]
    found = jobs(
        said(gres, job_id=34, array_job_id=number(32), array_task_id=number(0)),
        said(gres, job_id=41, het_job_id=number(40), het_job_offset=number(1)),
        said(gres, user_name="", job_id=7),
    )
    assert found is not None
    assert [(job.job_id, job.user) for job in found] == [
        ("32_0", "anna"),
        ("40+1", "anna"),
        ("7", "1000"),
    ]


def test_of_several_nodes_only_ours() -> None:
    gres, nodes = ["gpu:h100:2(IDX:0-1)", "gpu:h100:1(IDX:3)"], ("other", "node")
    assert jobs(said(gres, nodes)) == (Job("31", "anna", "train", 3, (3,)),)
    assert jobs(said(gres, nodes), node="third") == (Job("31", "anna", "train", 3, ()),)
    assert jobs(said(gres, ())) == (Job("31", "anna", "train", 3, ()),)


@pytest.mark.parametrize("text", ["", "slurm_load_jobs error", "[]", '{"jobs": 1}', "[" * 90000])
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        holders.parse(text)


def test_facts_of_another_shape() -> None:
    gpu = {
        "index": 0, "vendor": "nvidia", "name": None, "uuid": None, "slurm_type": "t4",
        "device_files": ["/dev/nvidia0"], "mig_mode": "disabled", "mig": [], "problems": [],
    }  # fmt: skip
    good: dict[str, Any] = {"gpus": {"state": "present", "devices": [gpu]}}
    found = parse_facts(json.dumps(good))
    assert found is not None
    assert (found.simulated, found.devices[0].slurm_type) == (True, "t4")
    for key, value in (("vendor", "none"), ("index", float("inf")), ("mig", 1), ("mig", [1])):
        assert (
            parse_facts(json.dumps({"gpus": {**good["gpus"], "devices": [{**gpu, key: value}]}}))
            is None
        )


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
KEYS = (
    "gres_detail",
    "job_id",
    "array_task_id",
    "het_job_id",
    "job_resources",
    "name",
    "user_name",
)


@given(
    st.text()
    | st.lists(st.sampled_from(["gpu:", "h100", ":1", "(IDX:", "0-1", ")", ","])).map("".join)
)
@example("gpu:" + "9" * 5000 + "(IDX:" + "9" * 5000 + ")")
def test_no_text_raises(text: str) -> None:
    assert isinstance(parse_listed(f"Gres Name=gpu Count=3 File={text}"), tuple)
    assert all(isinstance(place, int) for place in parse_held(text))
    assert count_gpus(text) >= 0
    assert isinstance(jobs(said([text]), node=None), tuple)
    assert parse_facts(text) is None


@given(st.dictionaries(st.sampled_from(KEYS), anything), anything)
def test_no_object_raises(job: dict[str, Any], other: Any) -> None:
    items = [said(["gpu:1(IDX:0)"]) | job, other]
    if isinstance(other, dict):
        assert all(isinstance(item, Job) for item in jobs(*items))
    else:
        with pytest.raises(ValueError, match=r"."):
            jobs(*items)
    facts = parse_facts(json.dumps({"gpus": other}))
    assert facts is None or isinstance(facts, Gpus)


def test_a_job_on_another_node_holds_nothing_here() -> None:
    there = said(["gpu:h100:1(IDX:0)"], nodes=("lab2",))
    assert jobs(there, node="lab1") == (Job("31", "anna", "train", 1, ()),)
    assert jobs(there, node="lab2") == (Job("31", "anna", "train", 1, (0,)),)
    assert jobs(there, node=None) == (Job("31", "anna", "train", 1, (0,)),)
