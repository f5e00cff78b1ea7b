"""Which GPUs a job holds on the nodes of a cluster that has several."""

from __future__ import annotations

import json
from pathlib import Path

from dshpc_setup.jobs import view
from dshpc_setup.jobs.allocated_gpus import PLACES_FILE, Places, known, texts
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.slurm import completion_log, job_states
from dshpc_setup.slurm.job_states import SlurmJob


def gpu(index: int, kind: str) -> OfferedGpu:
    return OfferedGpu(index, f"GPU-{kind}-{index}", kind, kind, kind.upper(), "nvidia", 1000, None)


def left(folder: Path, node: str, *kinds: str, table: str = "") -> None:
    own = folder / node
    own.mkdir()
    offer = Offer(node, 4, 4096, tuple(gpu(at, kind) for at, kind in enumerate(kinds)))
    (own / "offer.json").write_text(json.dumps(offer.to_json()))
    (own / PLACES_FILE).write_text(table)


def places(folder: Path) -> Places:
    left(folder, "lab", "h100", "h100")
    left(folder, "lab-2", "t4")
    left(folder, "lab-3", "t4", "l4", table="gpu 0 nvidia 1 GPU-l4-1\ngpu 1 nvidia 0 GPU-t4-0\n")
    own = known(str(folder / "lab" / PLACES_FILE), str(folder / "lab" / "offer.json"))
    return Places(own.rows, own.gpus, own.node, str(folder))


def told(job: SlurmJob, of: Places) -> list[tuple[str | None, int | None, str | None]]:
    return [(it.node, it.index, it.type) for it in view.of_known(job, None, of).gpus]


def test_a_job_elsewhere_has_that_nodes_gpus(tmp_path: Path) -> None:
    of = places(tmp_path)
    job = SlurmJob("7", state="RUNNING", gres="x", held=("gpu:t4:1(IDX:0)",), nodes=("lab-2",))
    assert told(job, of) == [("lab-2", 0, "t4")]
    by_table = SlurmJob("7", state="RUNNING", gres="x", held=("gpu:l4:1(IDX:0)",), nodes=("lab-3",))
    assert told(by_table, of) == [("lab-3", 1, "l4")]


def test_a_job_on_several_nodes_has_those_of_each(tmp_path: Path) -> None:
    held = ("gpu:h100:1(IDX:1)", "gpu:t4:1(IDX:0)")
    job = SlurmJob("7", state="RUNNING", gres="x", held=held, nodes=("lab", "lab-2"))
    of = places(tmp_path)
    assert told(job, of) == [("lab", 1, "h100"), ("lab-2", 0, "t4")]
    both = view.of_known(job, None, of).gpus
    assert texts(both) == (f"{both[0].text} on lab", f"{both[1].text} on lab-2")
    assert texts(both[:1]) == (both[0].text,)


def test_without_a_node_it_is_this_one(tmp_path: Path) -> None:
    of = places(tmp_path)
    for nodes in ((), ("",)):
        job = SlurmJob("7", state="RUNNING", gres="x", held=("gpu:h100:1(IDX:0)",), nodes=nodes)
        assert told(job, of) == [("lab", 0, "h100")]


def test_of_a_node_that_has_left_nothing_slurms_type_alone_is_known(tmp_path: Path) -> None:
    of = places(tmp_path)
    for node in ("lab-9", "../lab-2"):
        for text, kind in (
            ("gpu:l4:1(IDX:0)", "l4"), ("gpu:1(IDX:0)", None), ("gpu:(null):1(IDX:0)", None),
            ("shard:1(1/4),gpu:4090:1(IDX:0)", "4090"),
        ):  # fmt: skip
            job = SlurmJob("7", state="RUNNING", gres="x", held=(text,), nodes=(node,))
            assert told(job, of) == [(node, None, kind)]


def test_slurm_says_on_which_nodes(tmp_path: Path) -> None:
    allocation = [{"name": "lab-2"}, {"name": "lab-3"}]
    item = {
        "job_id": 7,
        "job_state": ["RUNNING"],
        "gres_detail": ["gpu:t4:1(IDX:0)", "gpu:l4:1(IDX:0)"],
        "job_resources": {"nodes": {"allocation": allocation}},
    }
    (job,) = job_states.parse(json.dumps({"jobs": [item]}))
    assert (job.nodes, len(job.held)) == (("lab-2", "lab-3"), 2)
    ended = {**item, "job_resources": None, "batch_host": "lab-3"}
    (job,) = job_states.parse(json.dumps({"jobs": [ended]}))
    assert job.nodes == ("lab-3",)


def test_the_first_of_a_list_of_nodes() -> None:
    for text, node in (
        ("lab", "lab"), ("lab-2", "lab-2"), ("lab-[2-3,5],other", "lab-2"), ("a,b", "a"),
        ("n[001-100]", "n001"), ("", None),
    ):  # fmt: skip
        assert completion_log._first_node(text) == node
