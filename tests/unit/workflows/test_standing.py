"""How the jobs of a workflow stand."""

from __future__ import annotations

import pytest

from dshpc_setup.jobs.view import View
from dshpc_setup.workflows import standing
from dshpc_setup.workflows.model import ENDINGS, Need
from dshpc_setup.workflows.standing import Standing, all_good, judge
from dshpc_setup.workflows.state import Ran, State


def _view(job_id: str, state: str, code: int | None = None) -> View:
    return View(job_id, int(job_id), None, "x", "me", state, started=1.0, ended=3.0, exit_code=code)


def _judged(needs: dict[str, tuple[Need, ...]], states: dict[str, str]) -> dict[str, Standing]:
    jobs = {
        name: Ran(str(at), f"/w/{name}", "f", of) for at, (name, of) in enumerate(needs.items())
    }
    seen = {name: _view(jobs[name].job_id or "", state, 3 if state == "FAILED" else 0)
            for name, state in states.items()}  # fmt: skip
    found = judge(State("w", "f", 0.0, jobs), seen, 10.0)
    return {each.name: each for each in found}


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("COMPLETED", "good"), ("FAILED", "bad"), ("TIMEOUT", "bad"), ("OUT_OF_MEMORY", "bad"),
        ("CANCELLED", "bad"), ("PENDING", "queued"), ("RUNNING", "running"),
        ("COMPLETING", "running"), ("UNKNOWN", "bad"),
    ],
)  # fmt: skip
def test_kinds(state: str, kind: str) -> None:
    assert _judged({"a": ()}, {"a": state})["a"].kind == kind


def test_a_job_of_which_nothing_is_known_has_not_succeeded() -> None:
    found = _judged({"a": ()}, {})["a"]
    assert (found.kind, found.words) == ("bad", "not known")


def test_one_that_waits_says_for_which() -> None:
    found = _judged({"a": (), "b": (Need("a"),)}, {"a": "RUNNING", "b": "PENDING"})
    assert found["b"].why == "it waits for a"
    found = _judged({"a": (), "b": (Need("a"),)}, {"a": "COMPLETED", "b": "PENDING"})
    assert found["b"].why is None


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(("state", "good"), [("COMPLETED", True), ("FAILED", False)])
def test_one_that_slurm_cancels_was_not_run(ending: str, state: str, good: bool) -> None:
    need = Need("a", ending)  # type: ignore[arg-type]
    found = _judged({"a": (), "b": (need,)}, {"a": state, "b": "CANCELLED"})["b"]
    met = ending == "FINISHED" or (ending == "COMPLETED") == good
    assert found.kind == ("bad" if met else "not_needed" if good else "not_run")
    assert found.words == ("cancelled" if met else "not needed" if good else "not run")


def test_what_is_not_run_takes_others_along() -> None:
    needs = {"a": (), "b": (Need("a"),), "c": (Need("b"),), "d": (Need("b", "FAILED"),)}
    states = {"a": "FAILED", "b": "CANCELLED", "c": "CANCELLED", "d": "COMPLETED"}
    found = _judged(needs, states)
    assert [each.kind for each in found.values()] == ["bad", "not_run", "not_run", "good"]
    assert found["b"].why == "a failed: exit code 3"
    assert found["c"].why == "b was not run"
    assert not all_good(list(found.values()))


def test_a_job_for_a_failure_that_did_not_come_is_no_failure() -> None:
    needs = {"a": (), "alarm": (Need("a", "FAILED"),), "after": (Need("alarm"),)}
    states = {"a": "COMPLETED", "alarm": "CANCELLED", "after": "CANCELLED"}
    found = list(_judged(needs, states).values())
    assert [each.kind for each in found] == ["good", "not_needed", "not_needed"]
    assert all_good(found)


def test_one_that_was_not_submitted() -> None:
    jobs = {"a": Ran("1", "/w/a", "f", reused=True), "b": Ran(needs=(Need("a", "FAILED"),))}
    found = judge(State("w", "f", 0.0, jobs), {"a": _view("1", "COMPLETED")}, 5.0)
    assert [each.kind for each in found] == ["good", "not_needed"]
    lines = standing.table(found)
    assert "from an earlier run" in lines[1]
    assert lines[2].split(None, 1) == ["b", "not needed" + lines[2].split("not needed")[1]]


def test_lines_of_progress() -> None:
    found = _judged({"a": ()}, {"a": "FAILED"})["a"]
    assert standing.change(found).startswith("a (job 0): failed: exit code 3, after 0:02;")


def test_a_job_that_failed_says_where_its_output_is() -> None:
    bad = standing.Standing("a", "bad", "failed: exit code 2", "50", exit_code=2, seconds=1.0)
    assert standing.change(bad) == (
        "a (job 50): failed: exit code 2, after 0:01; what it printed: dshpc job logs 50"
    )
    assert "logs" not in standing.change(standing.Standing("a", "bad", "cancelled", "50"))


def test_the_table_says_which_gpus() -> None:
    lines = standing.table(
        [standing.Standing("a", "running", "running", "5", gpus=("GPU 4 (T4)",), on="4")]
    )
    assert [line.split() for line in lines] == [
        ["JOB", "NAME", "STATE", "GPU", "TIME", "EXIT"],
        ["5", "a", "running", "4"],
    ]
