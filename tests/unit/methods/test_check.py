from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dshpc_setup import resources
from dshpc_setup.documents.document import MOST_PROBLEMS
from dshpc_setup.methods.check import check, read
from dshpc_setup.methods.model import Parameter, Resources
from tests.unit.methods.made import LEAST, folder, looked, only, problems, text_of, valid


def test_the_smallest_method() -> None:
    method = valid()
    assert (method.name, method.command, method.script_path) == ("train", ("python3",), "main.py")
    assert method.resources == Resources()


def test_all_that_can_be_declared() -> None:
    method = valid(
        **{"$schema": "../method.schema.json"},
        description="Trains.",
        version="1.0",
        command="python3 -u 'a b'",
        input_modes=["single_file", "file", "none"],
        parameters=[
            {"name": "lr", "type": "number", "default": 0.1, "allowed_values": [0.1, 1]},
            {"name": "epochs", "type": "integer", "required": True, "default": None},
        ],
        resources={
            "cpus": 0, "min_memory_mb": 10, "memory_mb": 10.0, "time_limit": "1-12:00:01",
            "gpus": 2, "gpu_type": "1g.10gb", "gpu_memory_mb": 1, "min_compute_capability": 8,
            "cuda": "12", "optional_gpus": "auto", "nodes": 2, "tasks": 2, "exclusive": True,
            "env": {"OMP_NUM_THREADS": "4"},
        },
        requires=["prepare"],
    )  # fmt: skip
    assert method.command == ("python3", "-u", "a b")
    assert method.input_modes == ("single_file", "params_only")
    assert method.parameters == (
        Parameter("lr", "number", default=0.1, allowed_values=(0.1, 1)),
        Parameter("epochs", "integer", required=True),
    )
    assert method.resources == Resources(
        cpus=0, memory_mb=10, min_memory_mb=10, time_limit=2161, gpus=2, gpu_type="1g.10gb",
        gpu_memory_mb=1, min_compute_capability="8.0", cuda="12.0", optional_gpus="auto", nodes=2,
        tasks=2, exclusive=True, env={"OMP_NUM_THREADS": "4"},
    )  # fmt: skip


def test_a_command_as_a_list_is_not_split() -> None:
    assert valid(command=["python3", "a b|c"]).command == ("python3", "a b|c")


@pytest.mark.parametrize(
    ("key", "value", "path", "what", "right"),
    [
        ("comand", "x", "$.comand", 'no key "comand"', 'Did you mean "command"?'),
        ("gpus", 1, "$.gpus", 'no key "gpus"', "It belongs to $.resources."),
        ("desc", "x", "$.desc", 'no key "desc"', 'Did you mean "description"?'),
        ("de", "x", "$.de", 'no key "de"', "There are: $schema, name"),
        ("zzz", 1, "$.zzz", 'no key "zzz"', "There are: $schema, name"),
        ("name", "a b", "$.name", "right form", "letters, digits"),
        ("name", "a\n", "$.name", "right form", "letters"),
        ("name", 7, "$.name", "It is the number 7; a text is needed.", '"7", in double quotes'),
        ("command", "", "$.command", "right form", "python3"),
        ("command", [], "$.command", "The list is empty", "python3"),
        ("command", "python3 'a", "$.command", "quote in the command is not closed", ""),
        ("command", "a | b", "$.command", '"|" is for a shell', "bash"),
        ("command", "A=1 b", "$.command", "sets a variable", "$.resources.env"),
        ("command", "./venv/bin/python", "$.command", "own new folder", "PATH"),
        ("script_path", "/etc/passwd", "$.script_path", "right form", "relative"),
        ("input_modes", ["sinle_file"], "$.input_modes[0]", "not an allowed", '"single_file"?'),
        ("input_modes", "none", "$.input_modes", "a list is needed", 'Write ["none"].'),
        ("requires", ["train"], "$.requires[0]", "its own result", ""),
        ("requires", ["a", "a"], "$.requires[1]", "comes twice", ""),
    ],
)
def test_one_wrong_key(key: str, value: Any, path: str, what: str, right: str) -> None:
    found = only(problems(**{key: value}))
    assert found.path == path
    assert what in found.what
    assert right in found.right


@pytest.mark.parametrize(
    ("resources", "path", "what"),
    [
        ({"gpus": -1}, "gpus", "-1 is less than 0."),
        ({"gpus": "1"}, "gpus", 'It is the text "1"'),
        ({"gpus": True}, "gpus", "It is true; a whole number"),
        ({"gpus": 1.5}, "gpus", "It is the number 1.5"),
        ({"cpus": -1}, "cpus", "less than 0"),
        ({"memory_mb": 0}, "memory_mb", "less than 1"),
        ({"nodes": 0}, "nodes", "less than 1"),
        ({"tasks": 0}, "tasks", "less than 1"),
        ({"memory": 1}, "memory", "no key"),
        ({"gpus": "1", "gpu_type": "h100"}, "gpus", 'It is the text "1"'),
        ({"shards": "1", "cuda": "12.4"}, "shards", 'It is the text "1"'),
        ({"memory_mb": 1, "min_memory_mb": 2}, "memory_mb", "needs at least 2"),
        ({"gpus": 0, "gpu_type": "h100"}, "gpu_type", "gpus is 0"),
        ({"gpu_memory_mb": 1}, "gpu_memory_mb", "no gpus are asked for"),
        ({"min_compute_capability": 8.0}, "min_compute_capability", "no gpus"),
        ({"cuda": "12.4"}, "cuda", "no gpus"),
        ({"optional_gpus": "auto"}, "optional_gpus", "no gpus"),
        ({"gpus": 1, "shards": 1}, "shards", "not both"),
        ({"shards": 1, "gpu_type": "h100"}, "gpu_type", "no gpus"),
        ({"nodes": 3, "tasks": 2}, "nodes", "cannot share"),
        ({"gpus": 1, "optional_gpus": "maybe"}, "optional_gpus", "an allowed value"),
        ({"gpus": 1, "cuda": 12.4}, "cuda", "a text is needed"),
        ({"gpus": 1, "min_compute_capability": 8.65}, "min_compute_capability", "too many digits"),
        ({"gpus": 1, "min_compute_capability": "sm_80"}, "min_compute_capability", "right form"),
        ({"gpus": 1, "gpu_type": "h100 -A x"}, "gpu_type", "right form"),
        ({"time_limit": "two"}, "time_limit", "right form"),
        ({"time_limit": "1:75"}, "time_limit", "is not a time"),
        ({"time_limit": "0:00"}, "time_limit", "no time at all"),
        ({"time_limit": "5000d"}, "time_limit", "ten years"),
        ({"time_limit": 0}, "time_limit", "less than 1"),
        ({"env": {"A": 4}}, "env.A", "a text is needed"),
        ({"env": {"A B": "4"}}, 'env["A B"]', "As a key"),
        ({"env": {"A": "a\0"}}, "env.A", "right form"),
        ({"env": {"SLURM_JOB_ID": "4"}}, "env.SLURM_JOB_ID", "set for each job"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "4"}}, "env.CUDA_VISIBLE_DEVICES", "set for each job"),
        ({"env": {"INPUT_FILE": "4"}}, "env.INPUT_FILE", "set for each job"),
        ({"env": {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}}, "env.CUDA_DEVICE_ORDER", "which of its"),
        ({"env": {"HIP_VISIBLE_DEVICES": "0"}}, "env.HIP_VISIBLE_DEVICES", "which of its GPUs"),
        ({"env": {"GPU_DEVICE_ORDINAL": "0"}}, "env.GPU_DEVICE_ORDINAL", "which of its GPUs"),
        ({"env": {"ZE_AFFINITY_MASK": "0"}}, "env.ZE_AFFINITY_MASK", "which of its GPUs"),
    ],
)
def test_one_wrong_resource(resources: dict[str, Any], path: str, what: str) -> None:
    found = only(problems(resources=resources))
    assert found.path == f"$.resources.{path}"
    assert what in found.what
    assert found.line > 4


@pytest.mark.parametrize(
    "resources",
    [
        {"gpus": 0},
        {"memory_mb": 2, "min_memory_mb": 2},
        {"shards": 1, "cuda": "12.4"},
        {"gpus": 0, "shards": 1},
        {"nodes": 2, "tasks": 2},
        {"time_limit": "59:59"},
        {"env": {"MY_SLURM_JOB": "4", "HIP_VISIBLE_DEVICE": "0", "CUDA_LAUNCH_BLOCKING": "1"}},
        {"env": {"A": "$(reboot)\n#SBATCH"}},
    ],
)
def test_near_misses_are_right(resources: dict[str, Any]) -> None:
    valid(resources=resources)


@pytest.mark.parametrize(
    ("parameter", "path", "what"),
    [
        ({"type": "int"}, "type", 'the text "int"'),
        ({"type": "integer", "default": "1"}, "default", "not of the parameter's type"),
        ({"type": "integer", "default": 1.5}, "default", "not of"),
        ({"type": "integer", "default": 9007199254740993.0}, "default", "not of"),
        ({"type": "boolean", "default": 1}, "default", "not of"),
        ({"type": "number", "default": True}, "default", "not of"),
        ({"type": "string", "default": 1}, "default", "not of"),
        ({"type": "file", "default": 1}, "default", "not of"),
        ({"type": "number", "allowed_values": [1, "2"]}, "allowed_values[1]", "not of"),
        ({"type": "string", "default": "c", "allowed_values": ["a"]}, "default", "not one of the"),
        ({"type": "string", "required": "TRUE"}, "required", "true or false is needed"),
        ({"type": "string", "allowed_values": []}, "allowed_values", "empty"),
        ({"type": "string", "requird": True}, "requird", "no key"),
    ],
)
def test_one_wrong_parameter(parameter: dict[str, Any], path: str, what: str) -> None:
    found = only(problems(parameters=[{"name": "p", **parameter}]))
    assert found.path == f"$.parameters[0].{path}"
    assert what in found.what


def test_two_parameters_of_one_name() -> None:
    twice = [{"name": "p", "type": "string"}, {"name": "p", "type": "file"}]
    assert only(problems(parameters=twice)).path == "$.parameters[1].name"


def test_required_beside_a_default_is_noted_and_valid() -> None:
    one = {"name": "p", "type": "string", "required": True, "default": "a"}
    method, found = check(text_of(parameters=[one]).encode(), Path("/m"), look=False)
    assert method is not None
    assert [(each.path, each.note) for each in found] == [("$.parameters[0].required", True)]


def test_all_problems_at_once_with_their_lines() -> None:
    text = """{
  // a comment
  "name": "train",
  "comand": "python3",
  "script_path": 3,
  "resources": {
    "gpus": -1,
    "memory_mb": 1, "min_memory_mb": 2,
    "env": {"SLURM_X": "1", "B": 2},
  }
}"""
    found = problems(text)
    assert [(each.line, each.path) for each in found] == [
        (1, "$"),
        (2, "$"),
        (4, "$.comand"),
        (5, "$.script_path"),
        (7, "$.resources.gpus"),
        (8, "$.resources.memory_mb"),
        (9, "$"),
        (9, "$.resources.env.B"),
        (9, "$.resources.env.SLURM_X"),
    ]


@pytest.mark.parametrize("text", ["[]", "null", "3", '"method"', "{}"])
def test_other_documents(text: str) -> None:
    assert {each.path for each in problems(text)} == {"$"}


def test_junk_without_an_end_is_told_in_part_and_soon() -> None:
    junk = json.dumps({**LEAST, **{f"key{n}": n for n in range(10_000)}})
    assert len(problems(junk)) == MOST_PROBLEMS


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "name command script_path parameters resources requires input_modes type default env "
                "allowed_values gpus shards time_limit memory_mb min_memory_mb nodes tasks x".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(JUNK)
@example({"requires": {"name": []}})
@example({"parameters": {"type": 1}, "resources": [{"env": 1}]})
def test_no_document_raises(value: Any) -> None:
    for given_value in (value, {**LEAST, **value} if isinstance(value, dict) else value):
        text = json.dumps(given_value, indent=1)
        if "Infinity" in text:
            continue
        method, found = check(text.encode(), Path("/m"), look=False)
        assert (method is None) == any(not each.note for each in found)
        assert all(1 <= each.line <= text.count("\n") + 1 for each in found)


def test_the_script_is_looked_at(tmp_path: Path) -> None:
    assert read(folder(tmp_path))[0] is not None
    for path, what in (
        ("none.py", "does not exist"),
        (".", "is a folder"),
        ("../other.py", "lies outside the method's folder:"),
        ("link.py", "lies outside the method's folder, behind a symbolic link"),
        ("loop.py", "cannot be found"),
        ("main.py/x", "does not exist"),
        ("x" * 300, "cannot be found"),
        ("pipe", "not a regular file"),
    ):
        here = folder(tmp_path, script_path=path)
        (tmp_path / "other.py").touch()
        if not (here / "link.py").is_symlink():
            (here / "link.py").symlink_to(tmp_path / "other.py")
            (here / "loop.py").symlink_to("loop.py")
            os.mkfifo(here / "pipe")
        assert what in only(looked(here)).what, path


def test_a_link_within_the_folder_is_no_problem(tmp_path: Path) -> None:
    here = folder(tmp_path, script_path="link.py")
    (here / "link.py").symlink_to("main.py")
    assert not looked(here)


def test_line_ends_of_windows_in_a_shell_script(tmp_path: Path) -> None:
    for command, is_wrong in (("bash -e", True), ("/bin/sh", True), ("python3", False)):
        here = folder(tmp_path, command=command)
        (here / "main.py").write_bytes(b"echo 1\r\necho 2\r\n")
        assert bool(looked(here)) == is_wrong, command
    here = folder(tmp_path, name="unix", command="bash")
    assert not looked(here)


def test_a_file_that_is_a_default(tmp_path: Path) -> None:
    one = {"name": "model", "type": "file", "default": "model.bin"}
    here = folder(tmp_path, parameters=[one])
    assert only(looked(here)).path == "$.parameters[0].default"
    (here / "model.bin").touch()
    assert not looked(here)


def test_what_is_no_file(tmp_path: Path) -> None:
    here = tmp_path / "m"
    here.mkdir()
    assert "There is no method.json" in only(looked(here)).what
    os.mkfifo(here / "method.json")
    assert "not a regular file" in only(looked(here)).what
    (here / "method.json").unlink()
    (here / "method.json").mkdir()
    assert "not a regular file" in only(looked(here)).what


def test_shipped_methods_are_valid() -> None:
    found = sorted(resources.methods().glob("*/method.json"))
    assert found
    for file in found:
        assert read(file.parent)[1] == ()
