"""A workflow's file, checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.workflows.check import check, load, name_of, told
from dshpc_setup.workflows.model import Need
from dshpc_setup.workflows.schema import NOT_OFFERED, RESOURCES_NOT_OFFERED, TOP_NOT_OFFERED
from tests.unit.methods.made import shut
from tests.unit.workflows.made import job, method, only, place, problems, valid

_SEED = """
jobs:
  data-preprocessing:
    command: "python3"
    args: ["preprocess.py"]
    resources:
      max_memory: 4096
      max_cpu: 200
  model-training:
    command: "python3"
    args: ["train.py", "--epochs", "100"]
    requires:
      - data-preprocessing: "COMPLETED"
    resources:
      max_memory: 16384
      max_cpu: 850
      gpu_count: 2          # Request 2 GPUs
      gpu_memory_mb: 8192   # 8GB minimum per GPU
"""


def test_jobs_as_joblet_writes_them(tmp_path: Path) -> None:
    first, second = valid(_SEED, tmp_path).jobs
    assert (first.resources.cpus, first.resources.memory_mb) == (2, 4096)
    assert second.resources.cpus == 9  # a part of a CPU is a CPU
    assert (second.resources.gpus, second.resources.gpu_memory_mb) == (2, 8192)
    assert second.argv == ("python3", "train.py", "--epochs", "100")
    assert second.needs == (Need("data-preprocessing", "COMPLETED"),)


def test_the_name_is_the_files_where_it_has_none(tmp_path: Path) -> None:
    assert valid(_SEED, tmp_path).name == "pipe"
    assert valid(f"name: other\n{_SEED}", tmp_path).name == "other"
    assert name_of(b"name: [", Path("/x/a b.yaml")) == "a_b"
    assert name_of(b"name: ../x", Path("/x/..yaml")) == "job"


def test_a_method_with_its_resources_changed(tmp_path: Path) -> None:
    method(tmp_path, "train", parameters=[{"name": "epochs", "type": "integer"}],
           resources={"gpus": 1, "cpus": 0, "env": {"A": "1"}})  # fmt: skip
    text = "jobs: {a: {method: train, parameters: {epochs: 3}, resources: {gpu_memory_mb: 8000}}}"
    found = job(text, tmp_path)
    assert found.parameters == {"epochs": 3}
    assert (found.resources.gpus, found.resources.gpu_memory_mb) == (1, 8000)
    assert (found.resources.cpus, dict(found.resources.env)) == (0, {"A": "1"})


def test_what_methods_refuse_is_told_at_its_line(tmp_path: Path) -> None:
    method(tmp_path, "train", parameters=[{"name": "epochs", "type": "integer", "required": True}])
    found = only("jobs:\n  a:\n    method: train\n    parameters:\n      epochs: x\n", tmp_path)
    assert (found.path, found.line) == ("$.jobs.a.parameters.epochs", 5)
    found = only("jobs:\n  a:\n    method: train\n", tmp_path)
    assert "epochs: It is required" in found.what
    found = only("jobs:\n  a:\n    method: trian\n", tmp_path)
    assert (found.line, found.right) == (3, "Did you mean train?")
    wrong = problems("jobs: {a: {method: x, args: [1]}, b: {command: x, parameters: {}}}", tmp_path)
    assert [each.path for each in wrong] == ["$.jobs.a.args", "$.jobs.b.parameters"]


def test_a_broken_method_is_told_once(tmp_path: Path) -> None:
    method(tmp_path, "train", version=3)
    found = only("jobs: {a: {method: train}, b: {method: train}}", tmp_path)
    assert "version" in found.what


@pytest.mark.parametrize("key", NOT_OFFERED)
def test_keys_of_others_say_what_to_use(key: str, tmp_path: Path) -> None:
    found = only(f"jobs:\n  a:\n    command: x\n    {key}: y\n", tmp_path)
    assert found.what == f'"{key}" is not offered here.'
    assert (found.path, found.line, found.right) == (f"$.jobs.a.{key}", 4, NOT_OFFERED[key])


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("gpus: 2", (2, None, "always", None)),
        ("gpu_memory_mb: 8000", (1, 8000, "always", "12.4")),
        ("cpus: 2", (1, None, "never", None)),
        ("gpus: 2, optional_gpus: never", (2, None, "never", None)),
        ("gpus: 0", (0, None, "always", None)),
        ("gpus: 0, shards: 1", (0, None, "always", "12.4")),
    ],
)
def test_who_asks_for_gpus_gets_them_and_none_are_none(
    said: str, expected: tuple[object, ...], tmp_path: Path
) -> None:
    which = {"cuda": "12.4"} if "12.4" in expected else {}
    method(tmp_path, "train", resources={"gpus": 1, "optional_gpus": "never", **which})
    found = job(f"jobs: {{a: {{method: train, resources: {{{said}}}}}}}", tmp_path).resources
    assert (found.gpus, found.gpu_memory_mb, found.optional_gpus, found.cuda) == expected


def test_a_method_that_says_which_gpus_runs_without_one(tmp_path: Path) -> None:
    which = {"gpu_type": "h100", "min_compute_capability": "8.0", "gpu_memory_mb": 40000}
    method(tmp_path, "train", resources={"gpus": 1, **which})
    found = job("jobs: {a: {method: train, resources: {gpus: 0}}}", tmp_path).resources
    assert (found.gpus, found.gpu_type, found.min_compute_capability) == (0, None, None)
    wrong = only("jobs: {a: {method: train, resources: {gpus: 0, gpu_type: t4}}}", tmp_path)
    assert "gpu_type says something of GPUs, and gpus is 0" in wrong.what


@pytest.mark.parametrize("key", RESOURCES_NOT_OFFERED)
def test_resources_of_others_say_what_to_use(key: str, tmp_path: Path) -> None:
    found = only(f"jobs: {{a: {{command: x, resources: {{{key}: 1}}}}}}", tmp_path)
    assert found.right == RESOURCES_NOT_OFFERED[key]


def test_top_keys_of_others_say_what_to_use(tmp_path: Path) -> None:
    for key, right in TOP_NOT_OFFERED.items():
        assert only(f"{key}: 1\njobs: {{a: {{command: x}}}}", tmp_path).right == right


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("jobs: {a: {comand: x}}", "$.jobs.a.comand", "Did you mean command?"),
        ("jobs: {a: {command: x, resources: {gpu: 1}}}", "$.jobs.a.resources.gpu", "gpus"),
        ("job: {a: {command: x}}", "$", "jobs is missing"),
        ("jobs: {}", "$.jobs", "no jobs"),
        ("jobs: {a: }", "$.jobs.a", "Nothing stands here"),
        ("jobs: {a b: {command: x}}", '$.jobs["a b"]', "does not have the right form"),
        ("jobs: {a: {args: [x]}}", "$.jobs.a", "says not what to run"),
        ("jobs: {a: {command: x, method: y}}", "$.jobs.a.method", "Keep one of the two"),
        ("jobs: {a: {command: x, requires: [b]}, bb: {command: x}}", "$.jobs.a.requires[0]",
         "Did you mean bb?"),
        ("jobs: {a: {command: x, requires: [b, {b: FAILED}]}, b: {command: x}}",
         "$.jobs.a.requires[1]", "twice"),
        ("jobs: {a: {command: x, requires: [{b: FAILD}]}, b: {command: x}}",
         "$.jobs.a.requires[0].b", 'Did you mean "FAILED"?'),
        ("jobs: {a: {command: x, requires: b}, b: {command: x}}", "$.jobs.a.requires", '["b"]'),
        ("jobs: {a: {command: 'x | y'}}", "$.jobs.a.command", "for a shell"),
        ("jobs: {a: {command: 'A=1 y'}}", "$.jobs.a.command", "sets a variable"),
        ("jobs: {a: {command: \"x 'y\"}}", "$.jobs.a.command", "not closed"),
        ("jobs: {a: {command: ./nope.sh}}", "$.jobs.a.command", "job's own new folder"),
        ("jobs: {a: {command: x, inputs: [nope.csv]}}", "$.jobs.a.inputs[0]", "There is no file"),
        ("jobs: {a: {command: x, resources: {gpu_memory_mb: 5}}}",
         "$.jobs.a.resources.gpu_memory_mb", "no gpus"),
        ("jobs: {a: {command: x, resources: {max_memory: 1, memory_mb: 1}}}",
         "$.jobs.a.resources.max_memory", "say the same"),
        ("jobs: {a: {command: x, resources: {max_cpu: 0}}}", "$.jobs.a.resources.max_cpu", "less"),
        ("jobs: {a: {command: x, resources: {env: {SLURM_X: y}}}}", "$.jobs.a.resources.env",
         "SLURM_X"),
    ],
)  # fmt: skip
def test_what_is_wrong(text: str, path: str, words: str, tmp_path: Path) -> None:
    found = problems(text, tmp_path)
    assert any(
        each.path.startswith(path) and words in f"{each.what} {each.right}" for each in found
    ), found


def test_circles_are_named(tmp_path: Path) -> None:
    text = "jobs:\n  x: {command: x, requires: [a]}\n  a: {command: x, requires: [b]}\n"
    text += "  b: {command: x, requires: [c]}\n  c: {command: x, requires: [a]}\n"
    assert "in a circle: a -> b -> c -> a." in only(text, tmp_path).what
    assert "a -> a" in only("jobs: {a: {command: x, requires: [a]}}", tmp_path).what


def test_all_is_told_at_once(tmp_path: Path) -> None:
    text = "jobs:\n  a: {command: x, network: y, args: 7}\n  b: {}\n  b: {command: x}\n"
    lines = [each.line for each in problems(text, tmp_path)]
    assert lines == [2, 2, 3, 4]


def test_methods_whose_results_are_read_must_be_required(tmp_path: Path) -> None:
    method(tmp_path, "prepare")
    method(tmp_path, "train", requires=["prepare"])
    text = "jobs: {data: {method: prepare}, a: {method: train, requires: [data]}}"
    assert job(text, tmp_path).needs == (Need("data"),)
    found = only("jobs: {data: {method: prepare}, a: {method: train}}", tmp_path)
    assert found.right == "Require a job with method: prepare."


def test_words_that_name_a_file_beside_the_workflow(tmp_path: Path) -> None:
    for name in ("train.py", "100", "run.sh"):
        (tmp_path / name).write_text("x")
    found = job("jobs: {a: {command: python3, args: [train.py, --x, nope.py]}}", tmp_path)
    assert found.argv == ("python3", f"{tmp_path}/train.py", "--x", "nope.py")
    assert found.files == (f"{tmp_path}/train.py",)
    assert job("jobs: {a: {command: ./run.sh}}", tmp_path).argv == (f"{tmp_path}/run.sh",)
    # A program is looked up in the PATH, as everywhere
    (tmp_path / "python3").write_text("x")
    assert job("jobs: {a: {command: python3}}", tmp_path).argv == ("python3",)


def test_words_that_name_a_file_behind_their_sign(tmp_path: Path) -> None:
    for name in ("c.yaml", "a=c.yaml"):
        (tmp_path / name).write_text("x")
    text = "jobs: {a: {command: x, args: [--config=c.yaml, data=./c.yaml, --other=nope.yaml]}}"
    found = job(text, tmp_path)
    file = f"{tmp_path}/c.yaml"
    assert found.argv == ("x", f"--config={file}", f"data={file}", "--other=nope.yaml")
    assert found.files == (file, file)
    whole = job(f"jobs: {{a: {{command: x, args: [--config={file}, a=c.yaml]}}}}", tmp_path)
    assert whole.argv == ("x", f"--config={file}", f"{tmp_path}/a=c.yaml")
    assert whole.files == (file, f"{tmp_path}/a=c.yaml")
    wrong = only("jobs: {a: {command: x, args: [--c=c.yaml]}}", tmp_path, work="/elsewhere")
    assert "jobs see the work folder only" in wrong.what


def test_folders_are_not_followed_and_that_is_said(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    found = job("jobs: {a: {command: x, args: [data, --out=./data]}}", tmp_path)
    assert found.argv == ("x", "data", "--out=./data")
    assert len(found.notes) == 2
    assert f"write {tmp_path}/data." in found.notes[0]
    assert f"write --out={tmp_path}/data." in found.notes[1]
    (note,) = job(f"jobs: {{a: {{command: x, args: [{tmp_path}/data]}}}}", tmp_path).notes
    assert "does not make the job run again" in note
    text = "jobs: {a: {command: data, args: [., ../, /, /usr, -x, nope, '', --data]}}"
    assert job(text, tmp_path).notes == ()


def test_files_outside_the_work_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    text = "jobs: {a: {command: python3, args: [train.py]}}"
    found = only(text, tmp_path, work="/elsewhere")
    assert "jobs see the work folder only" in found.what
    link = tmp_path.parent / f"{tmp_path.name}-link"
    link.symlink_to(tmp_path)
    assert valid(text, tmp_path, work=str(link)).jobs[0].argv[1] == f"{link}/train.py"


def test_words_stay_as_written(tmp_path: Path) -> None:
    text = "jobs: {a: {command: x, args: [1e-3, 0755, yes, true, '007', 1.50, \"a b; $(c)\"]}}"
    expected = ("x", "1e-3", "0755", "yes", "true", "007", "1.50", "a b; $(c)")
    assert job(text, tmp_path).argv == expected


def test_inputs_lie_beside_the_workflow(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x")
    method(tmp_path, "none", input_modes=["params_only"])
    found = job("jobs: {a: {command: x, inputs: [data.csv]}}", tmp_path)
    assert found.inputs == (f"{tmp_path}/data.csv",)
    wrong = only("jobs: {a: {method: none, inputs: [data.csv]}}", tmp_path)
    assert wrong.path == "$.jobs.a.inputs"


@pytest.mark.parametrize("what", ["command: x", "method: none"])
def test_a_runtime_of_joblets_is_a_note(what: str, tmp_path: Path) -> None:
    method(tmp_path, "none", input_modes=["params_only"])
    found = job(f"jobs: {{a: {{{what}, runtime: python-3.11-ml}}}}", tmp_path)
    (note,) = found.notes
    assert note.startswith('runtime: "python-3.11-ml" changes nothing. ')
    assert "dshpc env add" in note
    plain = job(f"jobs: {{a: {{{what}}}}}", tmp_path)
    assert replace(found, notes=()) == plain, "it is the very same job"


def test_load_tells_all_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "pipe.yaml"
    file.write_text("jobs:\n  a:\n    network: x\n")
    with pytest.raises(DshpcError) as caught:
        load(place(tmp_path))
    assert caught.value.exit_code == 2
    assert f"{file}:3: $.jobs.a.network: " in caught.value.details
    file.unlink()
    with pytest.raises(DshpcError, match="There is no workflow file"):
        load(place(tmp_path))


def test_a_file_that_may_not_be_read_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shut(monkeypatch, tmp_path)
    with pytest.raises(DshpcError, match=r"pipe\.yaml: It cannot be read: Permission denied"):
        load(place(tmp_path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_no_bytes_raise(tmp_path: Path, data: bytes) -> None:
    found, wrong = check(data, place(tmp_path))
    assert (found is None) == bool(wrong)
    for each in wrong:
        assert told(tmp_path, each).isprintable()


_WORDS = st.sampled_from(
    "jobs a b command args requires resources method parameters inputs name x COMPLETED FAILED "
    "gpus max_cpu gpu_count memory_mb env time_limit runtime 1 -1 0.5 1e9 true null '' 2h ../x "
    "$(x) #SBATCH".split()
)
_PARTS = st.recursive(
    _WORDS | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=15,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(["a", "b", "c d"]), st.dictionaries(_WORDS, _PARTS)))
def test_no_shape_raises(tmp_path: Path, jobs: dict[str, object]) -> None:
    import json

    found, wrong = check(json.dumps({"jobs": jobs}).encode(), place(tmp_path))
    assert (found is None) == bool(wrong)


def test_inputs_that_are_not_there_are_told_beside_a_method_that_is_not(tmp_path: Path) -> None:
    text = "jobs: {a: {method: none, inputs: [gone.csv]}, b: {command: 1, inputs: [lost.csv, 2]}}"
    said = [told(tmp_path, each) for each in problems(text, tmp_path)]
    assert any("There is no file gone.csv" in each for each in said)
    assert any('no method "none"' in each for each in said)
    assert not any("lost.csv" in each for each in said)
