"""The steps of a run: what each is told as, and that all stand in the report."""

from __future__ import annotations

import pytest

from dshpc_setup.setup.report import STEPS, Step, StepName
from dshpc_setup.setup.steps import Steps
from tests.unit.engine.fake import Listener


class Shown(Listener):
    def __init__(self) -> None:
        super().__init__()
        self.began: list[str] = []
        self.ended: list[Step] = []

    def begin(self, name: StepName) -> None:
        self.began.append(name)

    def end(self, step: Step) -> None:
        self.ended.append(step)


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def steps(shown: Shown) -> Steps:
    times = iter(range(100))
    return Steps(shown, lambda: float(next(times)))


def test_a_step_is_timed_and_shown(steps: Steps, shown: Shown) -> None:
    with steps.step("probe") as say:
        say("8 CPUs")
    with steps.step("build") as say:
        say("--no-build", True)
    found = [Step("probe", "ok", 1000.0, "8 CPUs"), Step("build", "skipped", 1000.0, "--no-build")]
    assert (steps.report.steps, shown.ended) == (found, found)
    assert shown.began == ["probe", "build"]


@pytest.mark.parametrize(
    ("error", "detail"), [(KeyboardInterrupt(), "interrupted"), (ValueError("why"), "why")]
)
def test_one_that_fails(steps: Steps, error: BaseException, detail: str) -> None:
    with pytest.raises(type(error)), steps.step("start"):
        raise error
    assert steps.report.steps == [Step("start", "failed", 1000.0, detail)]


def test_all_stand_in_the_report_in_their_order(steps: Steps) -> None:
    with steps.step("probe") as say:
        say("x")
    with pytest.raises(ValueError, match="x"), steps.step("plan"):  # before its turn
        raise ValueError("x")
    steps.fill()
    assert [step.name for step in steps.report.steps] == list(STEPS)
    states = {step.name: step.state for step in steps.report.steps}
    assert states == {**dict.fromkeys(STEPS, "skipped"), "probe": "ok", "plan": "failed"}


def test_notes_are_shown_and_kept(steps: Steps, shown: Shown) -> None:
    steps.note("Not used: it is old.")
    assert (steps.report.notes, shown.notes) == (["Not used: it is old."],) * 2
