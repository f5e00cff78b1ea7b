"""An engine that did not answer: what the project's folder says of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dshpc_setup import checkup
from dshpc_setup.facts import Engine, HostFacts
from dshpc_setup.machine import Ended
from dshpc_setup.observed.cluster_status import ClusterStatus
from dshpc_setup.observed.model import Observed
from dshpc_setup.project.folder import Project
from tests.unit.diagnose.known import known
from tests.unit.engine.fake import FakeMachine


@pytest.fixture
def facts() -> HostFacts:
    return known("vm-no-gpu").facts


def project(folder: Path, engine: str | None) -> Project:
    runtime = folder / ".dshpc" / "runtime.json"
    runtime.parent.mkdir()
    runtime.write_text(json.dumps({"container": "p-slurm", "work": str(folder), "engine": engine}))
    return Project(folder)


@pytest.mark.parametrize(
    ("engine", "state", "kind"),
    [("builtin", "timeout", "builtin"), ("podman", "timeout", None), (None, "timeout", None),
     ("builtin", "error", None)],
)  # fmt: skip
def test_a_silent_engine_is_the_projects(
    engine: str | None, state: str, kind: str | None, tmp_path: Path, facts: HostFacts
) -> None:
    asked = replace(facts, engine=Engine(state))  # type: ignore[arg-type]
    named = checkup._of_projects_engine(asked, project(tmp_path, engine))
    assert (named.engine.state, named.engine.kind) == (state, kind)


def test_without_a_project_it_stays_unknown(facts: HostFacts) -> None:
    asked = replace(facts, engine=Engine("timeout"))
    assert checkup._of_projects_engine(asked, None) == asked


@pytest.mark.parametrize(
    ("pressure", "busy"),
    [("some avg10=63.39 avg60=1.00 avg300=0.00 total=9\nfull avg10=0.00", True),
     ("some avg10=3.39 avg60=99.00 avg300=99.00 total=9\nfull avg10=99.00", False),
     ("", False), (None, False)],
)  # fmt: skip
def test_a_machine_is_busy_where_something_waits_for_its_cpus(
    pressure: str | None, busy: bool
) -> None:
    files = {} if pressure is None else {"/proc/pressure/cpu": pressure}
    assert checkup._is_busy(FakeMachine(files=files)) == busy


def test_an_answer_that_did_not_come_is_of_the_engine_or_the_cluster(facts: HostFacts) -> None:
    def ended(state: str, problem: str | None) -> dict[str, Ended]:
        seen = Observed(cluster=ClusterStatus("/p", "p-slurm", "running", problem=problem))
        told = replace(facts, engine=Engine(state))  # type: ignore[arg-type]
        return {
            "machine": Ended("present", (told,), None, 9.0),
            "cluster": Ended("present", (seen,), None, 9.0),
        }

    assert not checkup._gave_up(ended("present", None))
    assert checkup._gave_up(ended("timeout", None))
    assert checkup._gave_up(ended("present", "It did not answer within 4 seconds."))
    assert checkup._gave_up(
        {**ended("present", None), "machine": Ended("timeout", (), None, 7000.0)}
    )
