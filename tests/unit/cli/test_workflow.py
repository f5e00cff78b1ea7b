"""`dshpc workflow run` from its file to what the cluster is handed, with the cluster made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dshpc_setup import cli
from dshpc_setup.cli import job_request, workflow
from dshpc_setup.errors import DshpcError

FILE = """jobs:
  a: {command: "true", inputs: [a.bin]}
  b: {command: "true", inputs: [b.bin]}
"""


class Cluster:
    """Keeps `a`, and notes what it is handed, and which copies are there then."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.handed: list[dict[str, Any]] = []
        self.copies: list[list[str]] = []

    def ask(self, _runtime: Any, verb: str, request: job_request.Handed) -> dict[str, Any]:
        assert verb == "workflow"
        self.handed.append(request.to_json())
        self.copies.append([path.name for path in self.work.glob("jobs/*/.incoming-*/*")])
        actions = {"a": "reused", "b": "submitted"}
        return {"exit_code": 0, "jobs": [{"name": n, "action": it} for n, it in actions.items()]}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    (tmp_path / "work").mkdir()
    for name in "ab":
        (tmp_path / f"{name}.bin").write_text(name)
    (tmp_path / "pipe.yaml").write_text(FILE)
    found = Cluster(tmp_path / "work")
    monkeypatch.setattr(workflow, "ask", found.ask)
    return found


def submit(top: Path, work: Path, *, again: bool = False, dry: bool = False) -> None:
    here = job_request.Cluster({"work": str(work)}, str(top), None)
    workflow._submitted(top / "pipe.yaml", here, again=again, dry=dry)


def test_only_what_runs_gets_copies_and_none_are_left(tmp_path: Path, cluster: Cluster) -> None:
    submit(tmp_path, cluster.work)
    assert [each["dry_run"] for each in cluster.handed] == [True, False]
    assert cluster.copies == [[], ["b.bin"]]
    assert [job["copied"] for job in cluster.handed[1]["jobs"]] == [False, True]
    assert list(cluster.work.glob("jobs/*/.incoming-*")) == []


def test_where_all_runs_again_nothing_is_asked_first(tmp_path: Path, cluster: Cluster) -> None:
    submit(tmp_path, cluster.work, again=True)
    assert [each["dry_run"] for each in cluster.handed] == [False]
    assert sorted(cluster.copies[0]) == ["a.bin", "b.bin"]


@pytest.mark.parametrize(("inside", "dry"), [(True, False), (False, True)])
def test_one_question_is_enough_where_nothing_is_copied(
    tmp_path: Path, cluster: Cluster, inside: bool, dry: bool
) -> None:
    submit(tmp_path, tmp_path if inside else cluster.work, dry=dry)
    assert [each["dry_run"] for each in cluster.handed] == [dry]
    assert cluster.copies == [[]]


def test_a_refusal_comes_before_any_copy(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise DshpcError("It is not over yet.")

    monkeypatch.setattr(workflow, "ask", refuse)
    with pytest.raises(DshpcError, match="not over yet"):
        submit(tmp_path, cluster.work)
    assert list(cluster.work.iterdir()) == []


@pytest.mark.parametrize("first", [["run", "--wait"], ["workflow", "run", "--wait"]])
@pytest.mark.parametrize(
    ("option", "step"),
    [("--dry-run", "Leave one of the two out."), ("--json", "as JSON: dshpc ")],
)
def test_what_cannot_be_waited_for(
    first: list[str], option: str, step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*first, option, "x"], "dshpc") == 64
    said = capsys.readouterr().err
    assert f"--wait and {option} exclude each other." in said
    assert step in said
