"""GPUs of a node on another machine: what it has told slurmctld, and who holds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cluster import gpu_nodes
from dshpc_setup.cluster.gpus import GpusNow
from dshpc_setup.container import far
from dshpc_setup.facts import Gpus
from dshpc_setup.jobs.offer import Offer, OfferedGpu
from dshpc_setup.metrics.families import Snapshot, prometheus
from dshpc_setup.metrics.look import Seen
from dshpc_setup.probes.readings import Readings
from dshpc_setup.project.folder import JOINED, Project
from tests.unit.cluster.test_gpu_jobs import said
from tests.unit.engine.fake import Answer, FakeMachine

# Slurm has the two H100 first; the T4 lies between them
PLACES = "gpu 0 nvidia 0 GPU-a\ngpu 1 nvidia 2 GPU-c\ngpu 2 nvidia 1 GPU-b\n"


def gpu(index: int, uuid: str, kind: str) -> OfferedGpu:
    return OfferedGpu(index, uuid, kind, kind, f"NVIDIA {kind}", "nvidia", 1024, None)


OFFER = Offer(
    "lab2", 4, 4000, (gpu(0, "GPU-a", "h100"), gpu(1, "GPU-b", "t4"), gpu(2, "GPU-c", "h100"))
)


def line(text: str, node: str = "lab2") -> str:
    return f"NodeName={node} State=IDLE Extra={far.packed(text)} "


def told(offer: Offer = OFFER, node: str = "lab2") -> str:
    return line(json.dumps(offer.to_json()) + "\n" + PLACES, node)


def project(folder: Path, **notes: Any) -> Project:
    (folder / ".dshpc").mkdir()
    runtime = {"container": "lab-slurm", "prefix": "lab", "work": str(folder / "work")}
    (folder / ".dshpc/runtime.json").write_text(json.dumps(runtime))
    for name, value in notes.items():
        (folder / name).write_text(json.dumps(value))
    return Project(folder)


def looked(folder: Path, nodes: str, *jobs: dict[str, Any]) -> tuple[GpusNow, ...]:
    queue = json.dumps({"jobs": list(jobs), "errors": []})

    def slurm(argv: tuple[str, ...]) -> Answer:
        return Answer(queue if "squeue" in argv else nodes)

    machine: Any = FakeMachine(commands={"docker exec": slurm})
    return gpu_nodes.of_far(machine, project(folder), 5.0)


def test_who_holds_which_card_is_told_by_the_nodes_own_places(tmp_path: Path) -> None:
    here = "NodeName=lab State=IDLE "
    (now,) = looked(
        tmp_path,
        f"{here}\n{told()}\n",
        said(["gpu:h100:1(IDX:1)"], nodes=("lab2",)),
        said(["gpu:h100:1(IDX:0)"], nodes=("lab",), job_id=32),
    )
    assert now.node == "lab2"
    held = {card.device.uuid: [job.job_id for job in card.jobs or ()] for card in now.cards()}
    assert held == {"GPU-a": [], "GPU-b": [], "GPU-c": ["31"]}
    assert [card.slurm_type for card in now.cards()] == ["h100", "t4", "h100"]


@pytest.mark.parametrize(
    "text", ["", line("{}"), line("x" * 100), told(node="lab3"), "NodeName=lab2 Extra=dshpc1:&&"]
)
def test_what_tells_nothing_is_no_node(tmp_path: Path, text: str) -> None:
    assert looked(tmp_path, text) == ()


def test_a_machine_that_has_joined_looks_at_its_own_alone(tmp_path: Path) -> None:
    joined = project(tmp_path, **{JOINED: {"node": "lab2", "controller": "10.0.0.1"}})
    machine: Any = FakeMachine()
    assert not gpu_nodes.have_some(machine, joined)


def test_metrics_have_the_gpus_of_all_nodes_each_with_its_own_name(tmp_path: Path) -> None:
    others = looked(tmp_path, told(), said(["gpu:h100:1(IDX:1)"], nodes=("lab2",)))
    own = GpusNow(Gpus("absent"), Readings(), None, others=others)
    text = prometheus(Snapshot(Seen(own, "lab", True, 1.0, 0.1)))
    labels = '{Hostname="lab2",UUID="GPU-c",gpu="2",modelName="NVIDIA h100"'
    assert f"dshpc_gpu_held{labels}}} 1.0" in text
    assert text.count("dshpc_gpu_info{") == 3
