"""The methods that come with dsHPC, as they lie in the image, run as jobs on made-up GPUs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import resources
from tests.integration.cluster import Cluster, Outcome, made
from tests.integration.engines import Engine

pytestmark = pytest.mark.engines("builtin", "docker")

SHIPPED = resources.methods()
SIMULATED = "The GPUs are simulated (/dev/nvidia0 is /dev/null): no driver answers."


@pytest.fixture(scope="module")
def cluster(engine: Engine) -> Iterator[Cluster]:
    with made("shipped", engine=engine) as one:
        one.configure("--simulate", "h100:2").good()
        assert list((one.folder / "methods").iterdir()) == []  # nothing hides the shipped ones
        yield one


@dataclass(frozen=True)
class Run:
    """A method's run that was waited for."""

    outcome: Outcome
    folder: Path

    @property
    def result(self) -> dict[str, Any]:
        value = json.loads((self.folder / "result.json").read_text())
        assert isinstance(value, dict)
        return value


def waited(cluster: Cluster, name: str, *arguments: str) -> Run:
    told = cluster.dshpc("method", "run", name, "--wait", *arguments)
    (folder,) = [
        line.split("Workspace: ")[1] for line in told.stderr.splitlines() if "Workspace: " in line
    ]
    return Run(told, Path(folder))


def good(cluster: Cluster, name: str, *arguments: str) -> Run:
    found = waited(cluster, name, *arguments)
    found.outcome.good()
    return found


def test_all_are_there_and_none_is_broken(cluster: Cluster) -> None:
    names = {file.parent.name for file in SHIPPED.glob("*/method.json")}
    listed = cluster.dshpc("method", "list", "--json").good().report["methods"]
    assert {(each["name"], each["state"], each["origin"]) for each in listed} == {
        (name, "valid", "shipped") for name in names
    }
    assert names == set(cluster.said("ls", resources.METHODS_IN_IMAGE).split())


def test_gpu_report(cluster: Cluster) -> None:
    found = good(cluster, "gpu-report", "--gpus", "2")
    assert json.loads(found.outcome.stdout) == found.result
    variables = found.result["variables"]
    assert (variables["CUDA_VISIBLE_DEVICES"], variables["SLURM_GPUS_ON_NODE"]) == ("0,1", "2")
    assert len(set(variables["NVIDIA_VISIBLE_DEVICES"].split(","))) == 2
    assert found.result["device_files"] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert found.result["why_none"] == SIMULATED
    assert found.result["nvidia"]["gpus"] == []
    assert "nvidia-smi" in found.result["nvidia"]["why"]


@pytest.mark.parametrize(("name", "size"), [("vector-add", 1000), ("matmul-benchmark", 30)])
def test_what_computes_says_that_no_gpu_did(cluster: Cluster, name: str, size: int) -> None:
    found = good(cluster, name, "-p", f"size={size}", "-p", "dtype=float64", "-p", "repeats=2")
    assert "1 GPU h100" in found.outcome.stderr
    result = found.result
    assert (result["device"], result["why"]) == ("cpu", SIMULATED)
    assert (result["size"], result["repeats"], result["wrong"]) == (size, 2, 0)


@pytest.mark.parametrize("name", ["vector-add", "matmul-benchmark"])
def test_who_requires_a_gpu_is_not_answered_by_a_cpu(cluster: Cluster, name: str) -> None:
    found = waited(cluster, name, "-p", "require_gpu=yes")
    assert found.outcome.code == 1
    assert f"A GPU is required, and none can be used. {SIMULATED}" in found.outcome.stdout
    assert not (found.folder / "result.json").exists()


def test_torch_check_without_torch(cluster: Cluster) -> None:
    found = waited(cluster, "torch-check")
    assert found.outcome.code == 1
    assert "No module named 'torch'" in found.outcome.stdout
    assert f"pip install --target {cluster.work}/python" in found.outcome.stdout
    assert found.result["torch"] is None


def test_an_array_and_what_collects_it(cluster: Cluster) -> None:
    table = SHIPPED / "monte-carlo-pi" / "sets.csv"
    with table.open(encoding="utf-8") as file:
        sets = list(csv.DictReader(file))
    array = good(cluster, "monte-carlo-pi", "--array", str(table))
    for task, given in enumerate(sets):
        result = json.loads((array.folder / f"task-{task}" / "result.json").read_text())
        assert (str(result["seed"]), str(result["samples"])) == (given["seed"], given["samples"])
    collected = good(cluster, "collect", "-p", f"workspace={array.folder}")
    assert collected.result["results"] == len(sets)
    assert abs(collected.result["columns"]["pi"]["mean"] - 3.14159) < 0.01
    assert len((collected.folder / "table.csv").read_text().splitlines()) == len(sets) + 1
    one = array.folder / "task-0" / "result.json"
    assert good(cluster, "collect", "--input", str(one)).result["results"] == 1
    nothing = waited(cluster, "collect")
    assert nothing.outcome.code == 1
    assert "without a workspace or an input" in nothing.outcome.stdout


def test_a_model_needs_its_data_first(cluster: Cluster) -> None:
    check = cluster.dshpc("method", "check", "train-model").good().stdout
    assert "It needs the result of the method prepare-data" in check
    refused = cluster.dshpc("method", "run", "train-model")
    assert refused.code == 2
    assert "dshpc method run prepare-data --wait" in refused.stderr
    table = cluster.folder / "my table.csv"
    table.write_text(
        "age,ill\n" + "".join(f"{age},{int(age > 50)}\n" for age in range(100)) + ",1\n"
    )
    prepared = good(cluster, "prepare-data", "--input", str(table))
    assert prepared.result == {"train_rows": 80, "test_rows": 20, "dropped_rows": 1}
    trained = good(cluster, "train-model", "-p", "epochs=30")
    assert trained.result["data"] == str(prepared.folder)
    assert trained.result["weights"]["age"] > 0
    assert trained.result["test_accuracy"] > 0.8


def test_the_workflow_of_two_steps(cluster: Cluster) -> None:
    file = str(SHIPPED / "train-model" / "workflow.yaml")
    cluster.dshpc("workflow", "run", file, "--wait").good()
    newest = max(
        (cluster.work / "jobs/0").glob("train-model-*"), key=lambda path: path.stat().st_mtime
    )
    result = json.loads((newest / "result.json").read_text())
    assert set(result["weights"]) == {"", "x", "y"}
    assert result["test_accuracy"] > 0.85
    before = set((cluster.work / "jobs/0").iterdir())
    again = cluster.dshpc("workflow", "run", file, "--wait").good()
    assert set((cluster.work / "jobs/0").iterdir()) == before, again
