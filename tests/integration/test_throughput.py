"""How soon one queued job follows another, with the real daemons of two Slurm releases."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from tests.integration.slurms.asks import Ask
from tests.integration.slurms.cases import Case, cases
from tests.integration.slurms.cluster import run
from tests.integration.slurms.judge import bad_lines
from tests.integration.slurms.roots import SUITES, SlurmRoot

pytest_plugins = ("tests.integration.slurms.fixtures",)

JOBS = 16
# slurmctld looks at its queue once a second. Some six times what a job takes on an idle machine.
LONGEST_S = 0.75

# Each needs the whole node: none begins before the one before it is cleared away. Held until all are there.
_QUEUE = f"""
for number in $(seq {JOBS}); do
    id=$(sbatch --parsable --hold --exclusive -o /dev/null --wrap true) || exit 1
done
scontrol release $(squeue -h -o %i | paste -sd,) || exit 1
until [ -z "$(squeue -h -t PD,R,CG)" ]; do sleep 0.05; done
scontrol -o show jobs
"""
ASK = Ask("jobs one after another", ("sh", "-c", _QUEUE))


def span_s(text: str) -> float:
    """Seconds from the begin of the first job to that of the last, by the lines of `show jobs`."""
    said = [dict(item.partition("=")[::2] for item in line.split()) for line in text.splitlines()]
    assert [job["JobState"] for job in said] == ["COMPLETED"] * JOBS, text
    begun = [datetime.fromisoformat(job["StartTime"]) for job in said]
    return (max(begun) - min(begun)).total_seconds()


@pytest.mark.parametrize("suite", SUITES)
def test_a_queued_job_does_not_wait_for_the_next_second(
    suite: str, slurms: dict[str, SlurmRoot], tmp_path: Path
) -> None:
    case = cases()["a100x2"]
    assert isinstance(case, Case)
    outcome = run(slurms[suite], case, tmp_path / suite, questions=[ASK])
    assert outcome.stopped is None
    assert not bad_lines(outcome.controller_log), outcome.controller_log
    assert not bad_lines(outcome.node_log), outcome.node_log
    assert outcome.answers[ASK].code == 0, outcome.answers[ASK]
    assert span_s(outcome.answers[ASK].text) < LONGEST_S * (JOBS - 1)


def test_without_an_epilog_it_does(slurms: dict[str, SlurmRoot], tmp_path: Path) -> None:
    """The near miss: what the line in slurm.conf is there for, and that the test above can fail."""
    case = cases()["a100x2"]
    assert isinstance(case, Case)
    text = case.texts["slurm.conf"].replace("\nEpilog=/usr/bin/true\n", "\n")
    assert text != case.texts["slurm.conf"]
    without = replace(case, texts={**case.texts, "slurm.conf": text})
    outcome = run(slurms["trixie"], without, tmp_path / "without", questions=[ASK])
    assert span_s(outcome.answers[ASK].text) >= LONGEST_S * (
        JOBS - 1
    )  # so the test above would fail
