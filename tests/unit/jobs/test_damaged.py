"""Workspaces with damaged or forged files: what `dshpc job show|list --json` prints stays JSON."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.jobs import allocated_gpus, command_words, queries, records
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.jobs.workspace import Workspace
from dshpc_setup.machine import CommandResult
from dshpc_setup.workflows import state

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
REQUEST = (
    "schema", "kind", "name", "argv", "work", "resources", "parameters", "is_array", "inputs",
    "method_dir", "requires", "targets", "cwd", "fingerprint", "workflow", "utc_offset_s",
)  # fmt: skip
JOB = ("schema", "name", "kind", "tasks", "sbatch", "gpus", "submitted", "workflow", "fingerprint")
RESULT = (
    "schema", "exit_code", "signal", "max_rss_mib", "started", "ended", "out_of_memory",
    "out_of_memory_line", "gpus",
)  # fmt: skip


class Forgot:
    """A controller that knows no job any more."""

    def run(self, argv: Any, **_: Any) -> CommandResult:
        if "-j" in argv:
            return CommandResult(tuple(argv), "present", 1, "", "Invalid job id specified", 0.0)
        return CommandResult(tuple(argv), "present", 0, json.dumps({"jobs": []}), "", 0.0)


def printed(work: Path, *words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.MonkeyPatch.context() as patch:
        machine: Any = Forgot()
        patch.setattr(
            command_words,
            "look_at",
            lambda w: JobReader(machine, w.work, None, allocated_gpus.Places({})),
        )
        verb, *rest = words
        command = {"show": queries.show_main, "list": queries.list_main}[verb]
        assert command([*rest, "--work", str(work)]) == 0
    return out.getvalue()


def strict(text: str) -> Any:
    def refuse(what: str) -> NoReturn:
        raise AssertionError(f"{what} is not JSON")

    def finite(number: str) -> float:
        assert math.isfinite(float(number)), number
        return float(number)

    return json.loads(text, parse_constant=refuse, parse_float=finite)


def workspace(work: Path, **files: Any) -> Path:
    own = work / "jobs" / str(os.getuid()) / "train-1" / ".job"
    own.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        text = value if isinstance(value, str) else json.dumps(value)
        (own / f"{name}.json").write_text(text)
    return own


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    request=st.dictionaries(st.sampled_from(REQUEST) | st.text(max_size=3), JSON),
    job=st.dictionaries(st.sampled_from(JOB), JSON),
    result=st.dictionaries(st.sampled_from(RESULT), JSON),
)
def test_whatever_stands_in_the_files_the_answer_is_json(
    tmp_path: Path, request: dict[str, Any], job: dict[str, Any], result: dict[str, Any]
) -> None:
    workspace(tmp_path, request=request, job={**job, "job_id": "17"}, result=result)
    shown = strict(printed(tmp_path, "show", "17", "--json"))
    assert [one["id"] for one in shown["jobs"]] == ["17"]
    listed = strict(printed(tmp_path, "list", "--all", "--json"))
    assert [one["id"] for one in listed["jobs"]] == ["17"]
    said = printed(tmp_path, "show", "17") + printed(tmp_path, "list", "--all")
    assert all(line.isprintable() for line in said.split("\n"))


def test_what_is_no_number_of_json_is_not_known(tmp_path: Path) -> None:
    request = '{"name": "a", "parameters": [{"rate": NaN, "most": 1e999, "good": 1.5e3}]}'
    result = '{"exit_code": 0, "started": -Infinity, "ended": 7, "max_rss_mib": 1e999}'
    workspace(tmp_path, request=request, job={"job_id": 17, "name": 7}, result=result)
    answer = strict(printed(tmp_path, "show", "17", "--json"))
    assert answer["request"]["parameters"] == [{"rate": None, "most": None, "good": 1500.0}]
    (one,) = answer["jobs"]
    assert (one["name"], one["state"], one["exit_code"]) == ("train-1", "COMPLETED", 0)
    assert (one["started"], one["ended"], one["max_rss_mib"]) == (None, 7.0, None)


@pytest.mark.parametrize(("deep", "is_read"), [(60, True), (900, False), (200_000, False)])
def test_what_is_too_deep_to_be_printed_is_not_read(
    tmp_path: Path, deep: int, is_read: bool
) -> None:
    workspace(tmp_path, job={"job_id": 17}, request='{"a": ' + "[" * deep + "]" * deep + "}")
    place = Workspace(str(tmp_path), os.getuid(), "train-1")
    assert bool(records.read(place, "request.json")) == is_read
    answer = strict(printed(tmp_path, "show", "17", "--json"))
    assert (answer["request"] is not None) == is_read


@pytest.mark.parametrize("submitted", ["NaN", "1e999", "1" * 400, '"soon"', "null", "[]"])
def test_a_workflow_of_no_time_is_none(tmp_path: Path, submitted: str) -> None:
    folder = Path(state.folder(str(tmp_path)))
    folder.mkdir(parents=True)
    text = (
        f'{{"schema": "{state.SCHEMA}", "name": "w", "file": "f", "jobs": {{}}, "submitted": %s}}'
    )
    (folder / "w.json").write_text(text % submitted)
    assert state.read(str(tmp_path), "w") is None
    (folder / "w.json").write_text(text % "5.5")
    assert state.read(str(tmp_path), "w") == state.State("w", "f", 5.5)
