"""A submission that is cancelled, or told to stop, in its midst; and what it leaves."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.files import locks
from dshpc_setup.jobs import submit
from dshpc_setup.jobs.allocated_gpus import Places
from dshpc_setup.jobs.reader import JobReader
from dshpc_setup.machine import CommandResult
from dshpc_setup.workflows import inside, preflight, state
from dshpc_setup.workflows.request_building import WorkflowRequest
from dshpc_setup.workflows.run import Submission
from dshpc_setup.workflows.standing import Standing
from dshpc_setup.workflows.state import Ran, State
from tests.unit.slurm.test_completion_log import line
from tests.unit.workflows.test_run import _OFFER, Controller, _asked, _options, _submit


class Interrupted(Controller):
    """Something happens in its first sbatch call."""

    def __init__(self, happens: Any, at: int = 1) -> None:
        super().__init__()
        self.happens, self.at = happens, at

    def run(self, argv: Any, **more: Any) -> CommandResult:
        done = super().run(argv, **more)
        if argv[0] == "sbatch" and done.stdout == f"{100 + self.at}\n":
            self.happens()
        return done


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("at", [1, 3])
def test_a_signal_takes_all_back(number: signal.Signals, at: int, tmp_path: Path) -> None:
    before = signal.getsignal(number)
    controller = Interrupted(lambda: os.kill(os.getpid(), number), at)
    with pytest.raises(DshpcError, match=f"was stopped: {number.name} came") as caught:
        _submit(tmp_path, controller)
    assert caught.value.exit_code == Exit.INTERRUPTED
    cancelled = tuple(str(100 + count) for count in range(1, at + 1))
    assert controller.calls[-1] == ("scancel", *cancelled)
    assert len(controller.calls) == at + 1
    assert signal.getsignal(number) == before


def test_without_a_signal_nothing_is_taken_back(tmp_path: Path) -> None:
    controller = Interrupted(lambda: None)
    _submit(tmp_path, controller)
    assert [call[0] for call in controller.calls] == ["sbatch"] * 3


def test_a_cancellation_stops_the_run(tmp_path: Path) -> None:
    work, asked = str(tmp_path), _asked(tmp_path)
    begun, seen = threading.Event(), []

    def cancel() -> None:
        begun.wait(60)
        with state.cancelling(work, "pipe", 60.0) as stopped:
            seen.append(stopped)

    def happens() -> None:
        begun.set()
        for _ in range(1500):  # until the other one has set its mark
            if is_cancelled():
                return
            threading.Event().wait(0.02)

    controller = Interrupted(happens)
    other = threading.Thread(target=cancel)
    other.start()
    try:
        with state.lock(work, "pipe") as is_cancelled:
            one: Any = controller
            submission = Submission(one, asked, _OFFER, {}, None, (), is_cancelled)
            with pytest.raises(DshpcError, match="was stopped: it is being cancelled"):
                submission.run(preflight.wanted(asked))
    finally:
        begun.set()
        other.join()
    assert seen == [True]
    assert controller.calls[-1] == ("scancel", "101")
    assert [call[0] for call in controller.calls] == ["sbatch", "scancel"]


def test_a_cancellation_that_is_over_stops_nothing(tmp_path: Path) -> None:
    with state.cancelling(str(tmp_path), "pipe", 0.0) as stopped:
        assert not stopped
    with state.lock(str(tmp_path), "pipe") as is_cancelled:
        assert not is_cancelled()


def test_no_run_begins_during_a_cancellation(tmp_path: Path) -> None:
    with (
        state.cancelling(str(tmp_path), "pipe", 0.0),
        pytest.raises(DshpcError, match="at this moment"),
    ):
        state.lock(str(tmp_path), "pipe").__enter__()
    with state.lock(str(tmp_path), "pipe"):
        pass


def test_a_run_that_does_not_stop_is_said(tmp_path: Path) -> None:
    with (
        state.lock(str(tmp_path), "pipe"),
        pytest.raises(DshpcError, match="does not stop") as caught,
    ):
        state.cancelling(str(tmp_path), "pipe", 0.1).__enter__()
    assert caught.value.exit_code == Exit.INCOMPLETE


def test_what_was_never_run_cannot_be_cancelled(tmp_path: Path) -> None:
    with pytest.raises(DshpcError, match="has not been run here"):
        inside.cancel(WorkflowRequest("cancel", "pipe", str(tmp_path)))
    assert not (tmp_path / "jobs").exists()


class _Cluster(Controller):
    """Its log says what was cancelled. In the first sbatch call somebody else cancels."""

    def __init__(self, work: Path, happens: Any) -> None:
        super().__init__()
        self.log, self.happens = work / "jobs.log", happens

    def run(self, argv: Any, **more: Any) -> CommandResult:
        done = super().run(argv, **more)
        if argv[0] == "sbatch" and done.stdout == "101\n":
            self.happens()
        if argv[0] == "scancel":
            folder = _options(self.calls[0])["chdir"]
            self.log.write_text(
                f"{line(number=101, state='CANCELLED', folder=folder, uid=os.getuid())}\n"
            )
        return replace(done, stdout='{"jobs": []}') if argv[0] == "squeue" else done


def test_a_run_that_is_cancelled_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[dict[str, Any]] = []
    cancel = WorkflowRequest("cancel", "pipe", str(tmp_path))
    other = threading.Thread(target=lambda: answers.append(inside.cancel(cancel)))
    taken = threading.Event()

    def happens() -> None:
        other.start()
        taken.wait(60)

    controller: Any = _Cluster(tmp_path, happens)
    hold = locks.hold

    def held(handle: int, how: int, deadline_s: float = 0.0) -> bool:
        found = hold(handle, how, deadline_s)
        if how == fcntl.LOCK_SH and found:
            taken.set()
        return found

    monkeypatch.setattr(locks, "hold", held)
    monkeypatch.setattr(
        inside, "_look", lambda work: JobReader(controller, work, str(controller.log), Places({}))
    )
    monkeypatch.setattr(submit, "load_offer", lambda _: _OFFER)
    with pytest.raises(DshpcError, match="it is being cancelled") as caught:
        inside.run(_asked(tmp_path))
    other.join(60)
    assert "Cancelled again: a (job 101)." in caught.value.details
    assert [call[0] for call in controller.calls].count("sbatch") == 1
    assert answers[0]["jobs"] == [{"name": "a", "job_id": "101"}]


def _cancelled(
    work: Path, monkeypatch: pytest.MonkeyPatch, standings: list[Standing]
) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    controller = Controller()
    monkeypatch.setattr(inside, "_look", lambda _: type("L", (), {"machine": controller}))
    monkeypatch.setattr(inside, "_standings", lambda *_: standings)
    return inside.cancel(WorkflowRequest("cancel", "pipe", str(work))), controller.calls


def test_what_is_not_over_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with state.lock(str(tmp_path), "pipe"):
        state.write(str(tmp_path), State("pipe", "f", 0.0))
    standings = [
        Standing("a", "good", "", job_id="1"),
        Standing("b", "running", "", job_id="2"),
        Standing("c", "bad", "", job_id="3", state="CANCELLED"),
    ]
    answer, calls = _cancelled(tmp_path, monkeypatch, standings)
    assert answer["jobs"] == [{"name": "b", "job_id": "2"}]
    assert calls == [("scancel", "2")]
    answer, calls = _cancelled(tmp_path, monkeypatch, standings[:1])
    assert (answer["jobs"], calls) == ([], [])


def test_a_failed_run_forgets_nothing_good(tmp_path: Path) -> None:
    good = Ran("5", "/w/5", "f")
    last = State("pipe", "f", 0.0, dict.fromkeys(("a", "b", "c", "gone"), good))
    with pytest.raises(DshpcError):
        _submit(tmp_path, Controller(refused=2), last=last, good=("a", "c", "gone"))
    kept = state.read(str(tmp_path), "pipe")
    assert kept is not None
    # a was submitted anew, b was refused and was not good, gone is in the file no more
    assert list(kept.jobs) == ["a", "c"]
    assert kept.jobs["a"].job_id == "101"
    assert kept.jobs["c"] == replace(good, reused=True)


def test_a_run_that_comes_to_its_end_keeps_the_order(tmp_path: Path) -> None:
    last = State("pipe", "f", 0.0, {"c": Ran("5", "/w/5", "f")})
    controller = Controller()
    _submit(tmp_path, controller, last=last, good=("c",))
    kept = state.read(str(tmp_path), "pipe")
    assert kept is not None
    assert [ran.job_id for ran in kept.jobs.values()] == ["101", "102", "103"]
    assert list(kept.jobs) == ["a", "b", "c"]
    assert "dependency" in _options(controller.calls[2])
