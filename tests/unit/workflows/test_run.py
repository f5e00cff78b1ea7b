"""Submissions, with a controller made up: what is called, in which order, and what is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError
from dshpc_setup.jobs import node_choice
from dshpc_setup.jobs.offer import Offer
from dshpc_setup.machine import CommandResult
from dshpc_setup.methods.model import Resources
from dshpc_setup.workflows import preflight, request_building, state
from dshpc_setup.workflows.fingerprint import prints
from dshpc_setup.workflows.model import Job, Need, Workflow
from dshpc_setup.workflows.request_building import BuildOptions, Where, WorkflowRequest
from dshpc_setup.workflows.run import Submission
from dshpc_setup.workflows.standing import Standing
from dshpc_setup.workflows.state import Ran, State

_OFFER = Offer("node", cpus=4, memory_mib=8000, partitions=(("main", "INFINITE"),))


class Controller:
    """Takes jobs until the one that it refuses."""

    def __init__(self, refused: int | None = None) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.refused = refused

    def run(self, argv: Any, **_: Any) -> CommandResult:
        self.calls.append(tuple(argv))
        count = len([call for call in self.calls if call[0] == "sbatch"])
        if argv[0] == "sbatch" and count == self.refused:
            return CommandResult(tuple(argv), "present", 1, "", "Invalid qos", 0.0)
        text = f"{100 + count}\n" if argv[0] == "sbatch" else ""
        return CommandResult(tuple(argv), "present", 0, text, "", 0.0)


def _workflow(*jobs: Job) -> Workflow:
    return Workflow("pipe", Path("/w/pipe.yaml"), jobs)


_PIPE = _workflow(
    Job("a", ("x",)),
    Job("b", ("x",), needs=(Need("a"),)),
    Job("c", ("x",), needs=(Need("a", "FAILED"), Need("b", "FINISHED"))),
)


def _asked(work: Path, workflow: Workflow = _PIPE, *, dry: bool = False) -> WorkflowRequest:
    where = Where(str(work), str(work))
    return request_building.run(workflow, prints(workflow), where, BuildOptions(dry=dry))[0]


def _submit(work: Path, controller: Controller, **more: Any) -> dict[str, Any]:
    asked = request_building.from_json(
        json.dumps(_asked(work, dry=more.pop("dry", False)).to_json())
    )
    kept, last = more.pop("kept", {}), more.pop("last", None)
    submission = Submission(controller, asked, _OFFER, kept, last, **more)  # type: ignore[arg-type]
    if asked.dry_run:
        return submission.run(preflight.wanted(asked))
    with state.lock(str(work), "pipe"):
        return submission.run(preflight.wanted(asked))


def _options(call: tuple[str, ...]) -> dict[str, str]:
    return dict(word[2:].partition("=")[::2] for word in call if word.startswith("--"))


def test_jobs_wait_by_slurms_own_dependencies(tmp_path: Path) -> None:
    controller = Controller()
    answer = _submit(tmp_path, controller)
    assert [each["job_id"] for each in answer["jobs"]] == ["101", "102", "103"]
    said = [_options(call).get("dependency") for call in controller.calls]
    assert said == [None, "afterok:101", "afternotok:101,afterany:102"]
    kept = state.read(str(tmp_path), "pipe")
    assert kept is not None
    assert [ran.job_id for ran in kept.jobs.values()] == ["101", "102", "103"]


def test_results_reach_those_that_require_them(tmp_path: Path) -> None:
    answer = _submit(tmp_path, Controller())
    folders = {each["name"]: each["workspace"] for each in answer["jobs"]}
    request = json.loads((Path(folders["c"]) / ".job/request.json").read_text())
    assert request["requires"] == {"a": folders["a"], "b": folders["b"]}
    assert request["workflow"] == "pipe/c"


def test_a_refusal_takes_all_back(tmp_path: Path) -> None:
    controller = Controller(refused=3)
    with pytest.raises(DshpcError) as caught:
        _submit(tmp_path, controller)
    assert controller.calls[-1] == ("scancel", "101", "102")
    assert "The job c of the workflow could not be submitted" in caught.value.brief
    assert "Cancelled again: a (job 101), b (job 102)." in caught.value.details
    kept = state.read(str(tmp_path), "pipe")
    assert kept is not None
    assert list(kept.jobs) == ["a", "b"]


def test_a_refusal_of_the_first_cancels_nothing(tmp_path: Path) -> None:
    controller = Controller(refused=1)
    with pytest.raises(DshpcError):
        _submit(tmp_path, controller)
    assert [call[0] for call in controller.calls] == ["sbatch"]


def test_a_dry_run_calls_and_writes_nothing(tmp_path: Path) -> None:
    controller = Controller()
    answer = _submit(tmp_path, controller, dry=True)
    assert controller.calls == []
    assert list(tmp_path.iterdir()) == []
    assert "--dependency=afternotok:<a>,afterany:<b>" in answer["jobs"][2]["sbatch"]


def test_what_is_kept_is_not_run_again(tmp_path: Path) -> None:
    controller = Controller()
    kept = {"a": Ran("7", "/old/a", "f", reused=True)}
    answer = _submit(tmp_path, controller, kept=kept)
    actions = [(each["action"], each["why"]) for each in answer["jobs"]]
    assert actions[0] == ("reused", "unchanged since job 7, not run again")
    # a succeeded, so that c, which waits for its failure, has nothing to do
    assert actions[2] == ("none", "not needed: a succeeded")
    assert len(controller.calls) == 1
    assert "dependency" not in _options(controller.calls[0])


def test_what_waits_for_one_that_is_not_run(tmp_path: Path) -> None:
    jobs = (
        Job("a", ("x",)),
        Job("c", ("x",), needs=(Need("a", "FAILED"),)),
        Job("d", ("x",), needs=(Need("c"),)),
        Job("e", ("x",), needs=(Need("c", "FINISHED"),)),
    )
    asked = _asked(tmp_path, _workflow(*jobs))
    kept = {"a": Ran("7", "/old/a", "f", reused=True)}
    controller = Controller()
    with state.lock(str(tmp_path), "pipe"):
        submission = Submission(controller, asked, _OFFER, kept, None)  # type: ignore[arg-type]
        answer = submission.run(preflight.wanted(asked))
    assert [each["action"] for each in answer["jobs"]] == ["reused", "none", "none", "submitted"]
    assert answer["jobs"][2]["why"] == "not needed: c is not run"


def test_why_it_runs_again(tmp_path: Path) -> None:
    ran = {name: Ran("5", str(tmp_path), "other") for name in "abc"}
    answer = _submit(tmp_path, Controller(), last=State("pipe", "f", 0.0, ran), good=("a",))
    whys = [each["why"] for each in answer["jobs"]]
    assert whys == ["it has changed since job 5", None, None]


def test_a_workspace_that_is_gone_is_why_it_runs_again(tmp_path: Path) -> None:
    """Nobody can say then how it ended."""
    prints_of = {job.name: job.request.fingerprint for job in preflight.wanted(_asked(tmp_path))}
    ran = {name: Ran("5", f"{tmp_path}/gone", prints_of[name]) for name in "ab"}
    ran["b"] = replace(ran["b"], workspace=str(tmp_path))
    answer = _submit(tmp_path, Controller(), last=State("pipe", "f", 0.0, ran), good=("b",))
    whys = [each["why"] for each in answer["jobs"]]
    assert whys == ["the workspace of job 5 is gone", "a runs again", None]


def _standing(name: str, kind: str) -> Standing:
    return Standing(name, kind, "", job_id="5", workspace=f"/w/{name}")  # type: ignore[arg-type]


def _unchanged(work: Path, good: str, here: str, changed: str = "") -> set[str]:
    jobs = preflight.wanted(_asked(work))
    ran = {
        job.name: Ran(
            "5", f"/w/{job.name}", "x" if job.name in changed else job.request.fingerprint
        )
        for job in jobs
    }
    before = [_standing(name, "good" if name in good else "bad") for name in "abc"]
    folders = [f"/w/{name}" for name in here]
    return set(preflight.unchanged(jobs, State("pipe", "f", 0.0, ran), before, folders))


def test_only_what_ended_well_and_is_the_same_is_kept(tmp_path: Path) -> None:
    assert _unchanged(tmp_path, "abc", "abc") == {"a", "b", "c"}
    assert _unchanged(tmp_path, "ac", "abc") == {"a"}
    assert _unchanged(tmp_path, "abc", "ab") == {"a", "b"}
    assert _unchanged(tmp_path, "abc", "bc") == set()
    assert _unchanged(tmp_path, "abc", "abc", changed="b") == {"a"}
    assert preflight.unchanged(preflight.wanted(_asked(tmp_path)), None, [], []) == {}


def test_one_that_was_not_needed_makes_nobody_run_again(tmp_path: Path) -> None:
    workflow = _workflow(
        Job("a", ("x",)),
        Job("b", ("x",), needs=(Need("a", "FAILED"),)),
        Job("c", ("x",), needs=(Need("a"), Need("b", "FINISHED"))),
    )
    jobs = preflight.wanted(_asked(tmp_path, workflow))
    last = State("pipe", "f", 0.0, {
        job.name: Ran("5", f"/w/{job.name}", job.request.fingerprint) for job in jobs
    })  # fmt: skip

    def kept(a: str, b: str, c: str) -> set[str]:
        kinds = {"a": a, "b": b, "c": c}
        before = [_standing(name, kind) for name, kind in kinds.items()]
        return set(preflight.unchanged(jobs, last, before, ["/w/a", "/w/b", "/w/c"]))

    assert kept("good", "not_needed", "good") == {"a", "c"}
    assert kept("bad", "good", "good") == set()
    assert kept("good", "bad", "good") == {"a"}
    asked = _asked(tmp_path, workflow)
    before = [_standing("a", "good"), _standing("b", "not_needed"), _standing("c", "good")]
    again = preflight.unchanged(jobs, last, before, ["/w/a", "/w/b", "/w/c"])
    controller = Controller()
    with state.lock(str(tmp_path), "pipe"):
        submission = Submission(controller, asked, _OFFER, again, last)  # type: ignore[arg-type]
        answer = submission.run(preflight.wanted(asked))
    assert [each["action"] for each in answer["jobs"]] == ["reused", "none", "reused"]
    assert controller.calls == []


def test_a_running_workflow_is_refused() -> None:
    preflight.refuse_running("pipe", [_standing("a", "good"), _standing("b", "not_run")])
    with pytest.raises(DshpcError, match="is not over yet") as caught:
        preflight.refuse_running("pipe", [_standing("a", "good"), _standing("b", "running")])
    assert "dshpc workflow cancel pipe" in caught.value.resolution[1]


def test_all_that_can_never_run_is_said_before_anything(tmp_path: Path) -> None:
    big = Resources(cpus=64)
    jobs = _workflow(Job("a", ("x",), resources=big), Job("b", ("x",), resources=Resources(gpus=1)))
    controller = Controller()
    with pytest.raises(DshpcError) as caught:
        preflight.check_fits(controller, preflight.wanted(_asked(tmp_path, jobs)), _OFFER)  # type: ignore[arg-type]
    lines = caught.value.details.splitlines()
    assert lines[0] == "a: it needs 64 CPUs, this cluster has 4"
    assert lines[1].startswith("b: it needs ")
    assert all(call[0] != "sbatch" for call in controller.calls)
    preflight.check_fits(controller, preflight.wanted(_asked(tmp_path)), _OFFER)  # type: ignore[arg-type]


def test_each_job_is_judged_by_the_node_that_can_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cluster of several nodes: the own one is too small."""
    large = replace(_OFFER, node="large", cpus=64)
    monkeypatch.setattr(node_choice, "all_of", lambda has, **_: (has, large))
    jobs = _workflow(Job("a", ("x",), resources=Resources(cpus=64)), Job("b", ("x",)))
    asked, controller = replace(_asked(tmp_path, jobs), dry_run=True), Controller()
    preflight.check_fits(controller, preflight.wanted(asked), _OFFER)  # type: ignore[arg-type]
    answer = Submission(controller, asked, _OFFER, {}, None).run(preflight.wanted(asked))  # type: ignore[arg-type]
    assert [job["action"] for job in answer["jobs"]] == ["submitted", "submitted"]


def _with_data(tmp_path: Path) -> tuple[Workflow, Path]:
    """Two jobs, each with an input outside the work folder."""
    (tmp_path / "work").mkdir()
    jobs = []
    for name in "ab":
        (tmp_path / f"{name}.bin").write_text(name)
        jobs.append(Job(name, ("x",), inputs=(str(tmp_path / f"{name}.bin"),)))
    return _workflow(*jobs), tmp_path / "work"


def test_only_for_jobs_that_run_are_inputs_copied(tmp_path: Path) -> None:
    workflow, work = _with_data(tmp_path)
    where = Where(str(tmp_path), str(work))
    planned, copies = request_building.run(
        workflow, prints(workflow), where, BuildOptions(dry=True)
    )
    assert all(map(request_building.needs_copies, copies))
    assert list(work.iterdir()) == []
    kept = {"a": Ran("7", "/old/a", "f", reused=True)}
    controller: Any = Controller()
    dry = replace(planned, dry_run=True)
    answer = Submission(controller, dry, _OFFER, kept, None).run(preflight.wanted(dry))
    only = request_building.submitted(answer)
    assert only == {"b"}
    asked, _ = request_building.run(workflow, prints(workflow), where, BuildOptions(only=only))
    assert [path.name for path in (work / "jobs").glob("*/.incoming-*/*")] == ["b.bin"]
    prints_of = [[job["request"]["fingerprint"] for job in each.jobs] for each in (planned, asked)]
    assert prints_of[0] == prints_of[1]
    with state.lock(str(work), "pipe"):
        answer = Submission(controller, asked, _OFFER, kept, None).run(preflight.wanted(asked))
    assert [each["action"] for each in answer["jobs"]] == ["reused", "submitted"]
    assert (Path(answer["jobs"][1]["workspace"]) / "inputs/b.bin").read_text() == "b"


def test_a_job_that_has_to_run_after_all_is_not_run_without_its_inputs(tmp_path: Path) -> None:
    workflow, work = _with_data(tmp_path)
    where = Where(str(tmp_path), str(work))
    asked, _ = request_building.run(workflow, prints(workflow), where, BuildOptions(only={"a"}))
    controller: Any = Controller()
    with state.lock(str(work), "pipe"), pytest.raises(DshpcError) as caught:
        Submission(controller, asked, _OFFER, {}, None).run(preflight.wanted(asked))
    assert "its inputs were not copied" in caught.value.brief
    assert "Cancelled again: a (job 101)" in caught.value.details
    assert caught.value.resolution == ("Run it again: dshpc workflow run /w/pipe.yaml",)
    assert [call[0] for call in controller.calls] == ["sbatch", "scancel"]


def test_what_lies_in_the_work_folder_needs_no_copies(tmp_path: Path) -> None:
    workflow, _ = _with_data(tmp_path)
    where = Where(str(tmp_path), str(tmp_path))
    asked, copies = request_building.run(workflow, prints(workflow), where, BuildOptions(dry=True))
    assert not any(map(request_building.needs_copies, copies))
    assert [job["copied"] for job in asked.jobs] == [True, True]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "x"}', "null", '{"schema": 1, "b": 2}']
)
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(DshpcError, match="cannot be read"):
        request_building.from_json(text)
