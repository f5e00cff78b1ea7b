"""The methods that come with dsHPC, in this process; tests/integration/test_shipped_methods.py runs them
as jobs."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess  # noqa: TID251 -- its errors; no process is started
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup import resources
from dshpc_setup.image import standing
from dshpc_setup.methods import store, values
from dshpc_setup.methods.model import Method
from dshpc_setup.workflows import check

SHIPPED = resources.methods()
NAMES = sorted(store.SHIPPED)
NONE_GIVEN = "The job has no GPU from Slurm."


def test_the_list_of_them_is_that_of_the_documents() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/methods.md").read_text()
    table = page.split("## The methods that come with dsHPC")[1].split("\n\n| method")[1]
    rows = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines()[2:]]
    assert {name for row in rows for name in row.replace("`", "").replace(",", " ").split()} == (
        store.SHIPPED
    )
    assert all((SHIPPED / name / "method.json").is_file() for name in NAMES)


def found(name: str) -> Method:
    return store.find([SHIPPED], name)


def load(name: str) -> Any:
    """The script of a method as a module, with its own gpu.py."""
    script = found(name).script
    spec = importlib.util.spec_from_file_location(f"shipped_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(script.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(script.parent))
        sys.modules.pop("gpu", None)
    return module


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torch", "cupy", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_libraries: None) -> Callable[..., Any]:
    """Run a method's main as its launcher does; gives its result.json."""

    def start(
        name: str, *words: str, module: Any = None, inputs: Any = (), requires: Any = None
    ) -> Any:
        workspace = tmp_path / "jobs" / "1000" / name
        workspace.mkdir(parents=True, exist_ok=True)
        params, problems = values.typed(found(name), words)
        assert problems == []
        (tmp_path / "params.json").write_text(json.dumps(params))
        (tmp_path / "requires.json").write_text(json.dumps(requires))
        monkeypatch.setenv("JOB_WORKSPACE", str(workspace))
        monkeypatch.setenv("PARAMS_FILE", str(tmp_path / "params.json"))
        monkeypatch.setenv("INPUT_FILES", json.dumps([str(path) for path in inputs]))
        for variable, value in (
            ("INPUT_FILE", str(inputs[0]) if inputs else None),
            ("REQUIRES_FILE", str(tmp_path / "requires.json") if requires else None),
        ):
            monkeypatch.delenv(variable, raising=False)
            if value is not None:
                monkeypatch.setenv(variable, value)
        assert (module or load(name)).main() == 0
        return json.loads((workspace / "result.json").read_text())

    return start


def refused(run: Callable[..., Any], name: str, *words: str, **more: Any) -> str:
    """The sentence that it ends with: with one, Python's exit code is 1."""
    with pytest.raises(SystemExit) as caught:
        run(name, *words, **more)
    assert isinstance(caught.value.code, str)
    return caught.value.code


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_does_and_needs(name: str) -> None:
    method = found(name)
    assert method.name == method.folder.name
    assert method.description.endswith(".")
    assert all(each.description.endswith(".") for each in method.parameters)
    assert None not in (method.resources.time_limit, method.resources.min_memory_mb)


def test_what_comes_with_dshpc() -> None:
    assert len(NAMES) >= 6
    assert not any(entry.problems for entry in store.survey([SHIPPED]))
    assert found("train-model").requires == ("prepare-data",)


def test_each_folder_stands_alone_and_their_common_file_is_one() -> None:
    copies = [path.read_bytes() for path in SHIPPED.glob("*/gpu.py")]
    assert len(copies) == 4
    assert len(set(copies)) == 1


def test_the_table_of_the_array_is_one_of_its_method() -> None:
    table = SHIPPED / "monte-carlo-pi" / "sets.csv"
    sets, problems = values.table(found("monte-carlo-pi"), table.read_text(), table.name)
    assert problems == []
    assert len({each["seed"] for each in sets}) == len(sets) > 1


def test_the_workflow_is_valid() -> None:
    flow = check.load(check.Place(SHIPPED / "train-model" / "workflow.yaml", [SHIPPED]))
    first, second = flow.jobs
    assert (first.method, second.method) == (found("prepare-data"), found("train-model"))
    assert [need.job for need in second.needs] == [first.name]


@pytest.mark.parametrize(
    ("chosen", "target", "why"),
    [
        (None, "/dev/null", NONE_GIVEN),
        ("", "/dev/null", NONE_GIVEN),
        ("0", None, "Slurm gave the job a GPU, and no device file of one is here."),
        ("0", "/dev/null", "The GPUs are simulated ({} is /dev/null): no driver answers."),
        ("0", "/dev/zero", ""),
    ],
)
def test_why_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    chosen: str | None,
    target: str | None,
    why: str,
) -> None:
    gpu = load("vector-add").gpu
    file = tmp_path / "nvidia0"
    if target is not None:
        file.symlink_to(target)
    monkeypatch.setattr(gpu, "FILES", (f"{tmp_path}/nvidia[0-9]*",))
    if chosen is not None:
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", chosen)
    assert gpu.why_none() == why.format(file)
    assert gpu.find().device == "cpu"
    assert ("PyTorch" in gpu.find().why) == (why == "")  # no need to ask a library otherwise


def asked_only(*, available: bool) -> Any:
    """As much of PyTorch as is asked before anything is computed."""
    chosen: list[str] = []
    cuda = SimpleNamespace(is_available=lambda: available, get_device_name=lambda _: "H100")
    return SimpleNamespace(
        __version__="2.9", cuda=cuda, chosen=chosen, set_default_device=chosen.append
    )


def test_a_gpu_is_looked_for_by_each_library(
    monkeypatch: pytest.MonkeyPatch, no_libraries: None
) -> None:
    gpu = load("vector-add").gpu
    monkeypatch.setattr(gpu, "why_none", lambda: "")
    assert "PyTorch cannot be used" in gpu.find().why
    assert "CuPy cannot be used" in gpu.find().why
    monkeypatch.setitem(sys.modules, "torch", asked_only(available=False))
    assert gpu.find().why.startswith("PyTorch 2.9 finds no GPU that it can use. CuPy")
    torch = asked_only(available=True)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert gpu.find() == gpu.Found(torch, "PyTorch 2.9", "gpu", "H100", None)
    assert torch.chosen == ["cuda"]


@pytest.mark.parametrize("name", ["vector-add", "matmul-benchmark"])
def test_without_a_gpu_it_says_so(run: Callable[..., Any], name: str) -> None:
    result = run(name, "size=40", "repeats=1")
    assert (result["device"], result["name"], result["wrong"]) == ("cpu", None, 0)
    assert result["why"] == NONE_GIVEN
    said = refused(run, name, "require_gpu=true")
    assert said == f"A GPU is required, and none can be used. {NONE_GIVEN}"
    assert "1 or more" in refused(run, name, "repeats=0")
    assert "1 or more" in refused(run, name, "size=-1")
    assert "there is no folder /nowhere" in refused(run, name, "packages=/nowhere")


def test_packages_of_a_folder_are_used(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delitem(sys.modules, "numpy")
    (tmp_path / "numpy.py").write_text("import os; os.mkdir('tried'); raise ImportError\n")
    assert run("vector-add", "size=2", f"packages={tmp_path}")["library"].startswith("Python")
    assert (tmp_path / "tried").exists()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_are_right_and_a_wrong_one_is_found(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    module = load("vector-add")
    assert run("vector-add", "size=1000", f"dtype={dtype}", module=module)["wrong"] == 0
    right = module.add

    def wrong(*given: Any) -> Any:
        z, seconds = right(*given)
        z[7] += 1
        return z, seconds

    monkeypatch.setattr(module, "add", wrong)
    said = refused(run, "vector-add", "size=1000", f"dtype={dtype}", module=module)
    assert said == "1 of 1000 sums are wrong."


_MATMUL = load("matmul-benchmark")
_SALT = st.integers(0, 300)


@given(size=st.integers(1, 12), salts=st.tuples(_SALT, _SALT))
def test_products_are_right_and_wrong_ones_are_found(size: int, salts: tuple[int, int]) -> None:
    a, b = (_MATMUL.matrix(None, size, "float64", salt) for salt in salts)
    c, _ = _MATMUL.multiply(None, a, b)
    assert _MATMUL.wrong_entries(c, size, salts) == 0
    assert {entry for row in (*a, *b) for entry in row} <= {-1.0, 0.0, 1.0}
    other = [[entry + 1 for entry in row] for row in c]
    assert _MATMUL.wrong_entries(other, size, salts) == _MATMUL.CHECKED


def test_without_pytorch_it_is_said_how_to_get_it(run: Callable[..., Any], tmp_path: Path) -> None:
    said = refused(run, "torch-check")
    assert said.startswith("PyTorch cannot be used: ")
    assert f"--target {tmp_path}/python --python-version 3." in said
    typed = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    assert typed[:4] == [
        "dshpc env add torch", standing.NEXT_LOCK, standing.NEXT_BUILD,
        "dshpc method run torch-check --wait",
    ]  # fmt: skip
    assert json.loads((tmp_path / "jobs/1000/torch-check/result.json").read_text())["torch"] is None


class Product:
    """The least of a tensor that torch-check takes to the GPU and back."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self

    def __mul__(self, _: object) -> Product:
        return self

    __mod__ = __sub__ = __matmul__ = __mul__


def torch_of(*, cuda: str | None, gpus: int = 0, equal: bool = True) -> Any:
    def init() -> None:
        raise RuntimeError("the driver is too old")

    gpu = SimpleNamespace(name="H100", major=9, minor=0, total_memory=80 << 30)
    return SimpleNamespace(
        __version__="2.9", float32=None, version=SimpleNamespace(cuda=cuda, hip=None),
        arange=lambda _: Product(), equal=lambda *_: equal,
        cuda=SimpleNamespace(
            is_available=lambda: gpus > 0, device_count=lambda: gpus, init=init,
            get_device_properties=lambda _: gpu,
        ),
    )  # fmt: skip


def test_what_pytorch_says_of_the_gpu(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of(cuda="12.8", gpus=1))
    report = run("torch-check")
    assert report["gpus"] == [{"name": "H100", "capability": "9.0", "memory_mib": 81920}]
    assert (report["cuda"], report["device"], report["why"]) == ("12.8", "cuda:0", None)
    monkeypatch.setitem(sys.modules, "torch", torch_of(cuda="12.8", gpus=1, equal=False))
    assert refused(run, "torch-check") == "The product on cuda:0 is wrong."


@pytest.mark.parametrize(
    ("given_one", "cuda", "why"),
    [
        (False, "12.8", NONE_GIVEN),
        (True, None, "PyTorch 2.9 is built for the CPU alone."),
        (True, "12.8", "PyTorch says: the driver is too old"),
    ],
)
def test_why_pytorch_has_no_gpu(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, given_one: bool, cuda: str, why: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch_of(cuda=cuda))
    module = load("torch-check")
    if given_one:
        monkeypatch.setattr(module.gpu, "why_none", lambda: "")
    said = refused(run, "torch-check", module=module)
    assert said == f"PyTorch can use no GPU here. {why}"
    report = run("torch-check", "require_gpu=false", module=module)
    assert (report["device"], report["why"]) == ("cpu", why)


_TWO = "0, NVIDIA H100, GPU-aa, 81559, 580.82\n1, NVIDIA H100, GPU-bb, 81559, 580.82\n"


@pytest.mark.parametrize(
    ("reply", "of_this_job", "why"),
    [
        (subprocess.CompletedProcess([], 0, _TWO, ""), [False, True], None),
        (subprocess.CompletedProcess([], 9, "no driver\n", ""), [], "no driver"),
        (subprocess.TimeoutExpired([], 60), [], "nvidia-smi did not answer within 60 s."),
        (FileNotFoundError(), [], "There is no nvidia-smi here."),
    ],
)
def test_what_nvidia_smi_says(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
    reply: Any, of_this_job: list[bool], why: str | None,
) -> None:  # fmt: skip
    def answer(argv: list[str], **options: Any) -> Any:
        assert options["timeout"] == 60
        if isinstance(reply, Exception):
            raise reply
        return reply

    monkeypatch.setattr(subprocess, "run", answer)
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "GPU-bb")
    report = run("gpu-report")
    assert report["variables"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-bb"
    assert [gpu["of_this_job"] for gpu in report["nvidia"]["gpus"]] == of_this_job
    assert report["nvidia"].get("why") == why


def test_points_come_from_the_seed(run: Callable[..., Any]) -> None:
    one, same, other = (run("monte-carlo-pi", f"seed={seed}", "samples=9000") for seed in (1, 1, 2))
    assert one == same
    assert one["inside"] != other["inside"]
    assert abs(one["pi"] - 3.14159) < 0.1
    assert "1 or more" in refused(run, "monte-carlo-pi", "samples=0")


def test_a_model_is_trained_on_what_was_prepared(run: Callable[..., Any], tmp_path: Path) -> None:
    prepared = run("prepare-data", "rows=200")
    assert prepared == {"train_rows": 160, "test_rows": 40, "dropped_rows": 0}
    requires = {"prepare-data": str(tmp_path / "jobs/1000/prepare-data")}
    good = run("train-model", requires=requires)
    assert list(good["weights"]) == ["", "x", "y"]
    assert good["test_accuracy"] > 0.8
    untrained = run("train-model", "epochs=0", requires=requires)
    assert set(untrained["weights"].values()) == {0.0}
    assert untrained["test_accuracy"] < good["test_accuracy"]


def test_a_table_of_ones_own_is_prepared(run: Callable[..., Any], tmp_path: Path) -> None:
    good = [f"{n},5,{n % 2}" for n in range(20)]
    table = tmp_path / "in.csv"
    table.write_text(
        "\ufeff" + "\n".join(["age,same,ill", "1,,0", "x,5,1", *good, "", "1,nan,0", "1,5,2"])
    )
    result = run("prepare-data", "test_share=0.25", inputs=[table])
    assert result == {"train_rows": 15, "test_rows": 5, "dropped_rows": 4}
    with open(tmp_path / "jobs/1000/prepare-data/train.csv", encoding="utf-8") as file:
        header, *lines = csv.reader(file)
    assert header == ["age", "same", "ill"]
    ages = [float(line[0]) for line in lines]
    assert abs(sum(ages)) < 1e-9
    assert abs(sum(age**2 for age in ages) / 15 - 1) < 1e-9
    assert {float(line[1]) for line in lines} == {0.0}  # all the same: no spread to divide by
    for share in ("0", "1", "-0.5"):
        assert "between 0 and 1" in refused(run, "prepare-data", f"test_share={share}")
    assert "do not make parts" in refused(run, "prepare-data", "rows=1")
    table.write_text("age\n1\n")
    assert "two columns" in refused(run, "prepare-data", inputs=[table])


def test_results_are_collected_from_everywhere(run: Callable[..., Any], tmp_path: Path) -> None:
    array = tmp_path / "array-[1]"
    for task in (10, 9):
        (array / f"task-{task}").mkdir(parents=True)
        (array / f"task-{task}" / "result.json").write_text(json.dumps({"n": task, "list": []}))
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "result.json").write_text('{"n": 2, "is": true, "word": "w"}')
    requires = {"pi": str(alone), "its-job": str(alone)}
    extra = tmp_path / "extra.json"
    extra.write_text('{"m": 1.5}')
    words = f"workspace={array}"
    result = run("collect", words, inputs=[extra], requires=requires)
    assert result["results"] == 4
    assert list(result["columns"]) == ["m", "n"]
    assert result["columns"]["n"] == {"count": 3, "mean": 7, "stdev": 19**0.5, "min": 2, "max": 10}
    assert result["columns"]["m"]["stdev"] == 0
    with open(tmp_path / "jobs/1000/collect/table.csv", encoding="utf-8") as file:
        assert [row["n"] for row in csv.DictReader(file)] == ["", "9", "10", "2"]
    extra.write_text("[]")
    assert "holds no JSON object" in refused(run, "collect", inputs=[extra])


def test_nothing_to_collect(run: Callable[..., Any], tmp_path: Path) -> None:
    assert "without a workspace or an input" in refused(run, "collect")
    assert f"no result.json in {tmp_path}" in refused(run, "collect", f"workspace={tmp_path}")
    assert "its whole path" in refused(run, "collect", "workspace=jobs/none")
