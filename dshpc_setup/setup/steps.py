"""The steps of a run as they come and go: timed, shown, and kept in its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dshpc_setup.setup.report import STEPS, Report, Step, StepName, StepReporter


class Steps:
    """What a run goes through; `report` is true at every moment."""

    def __init__(self, reporter: StepReporter, clock: Callable[[], float]) -> None:
        """`clock`: seconds, as Machine.clock."""
        self.reporter, self._clock = reporter, clock
        self.report = Report()

    @contextmanager
    def step(self, name: StepName) -> Iterator[Callable[..., None]]:
        """Times a step; the body calls the yielded function with what it found."""
        state: dict[str, Any] = {"state": "ok", "detail": None}

        def say(detail: str, skipped: bool = False) -> None:
            state["detail"], state["state"] = detail, "skipped" if skipped else "ok"

        started = self._clock()
        self.reporter.begin(name)
        try:
            yield say
        except BaseException as error:
            state["state"] = "failed"
            state["detail"] = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            raise
        finally:
            ms = round((self._clock() - started) * 1000, 1)
            step = Step(name, state["state"], ms, state["detail"])
            self.report.steps.append(step)
            self.reporter.end(step)

    def note(self, text: str) -> None:
        """Said on screen and kept in the report."""
        self.report.notes.append(text)
        self.reporter.note(text)

    def fill(self) -> None:
        """What the run did not come to counts as skipped; all steps stand in their order."""
        done = {step.name: step for step in self.report.steps}
        self.report.steps = [done.get(name) or Step(name, "skipped", 0.0) for name in STEPS]
