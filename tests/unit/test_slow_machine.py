"""From the first question to the first job on machines whose programs take twenty seconds each."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.errors import Exit
from dshpc_setup.project.folder import Project
from dshpc_setup.setup.pipeline import Configure, Options
from dshpc_setup.setup.report import Report, Step, StepName
from tests.unit.engine.fake import Listener
from tests.unit.slow import SlowMachine

DELAY_S = 20.0
ONE_BY_ONE = ("docker", "compose", "docker-compose", "buildx", "apt-cache", "apt-get", "apt-config",
              "getent", "inspect", "context", "pull", "build", "config", "up", "wait", "sinfo",
              "srun")  # fmt: skip


class Steps(Listener):
    def begin(self, name: StepName) -> None:
        self.heard.append(name)

    def end(self, step: Step) -> None:
        self.heard.append(f"{step.name} {step.state}")


def configure(machine: SlowMachine, folder: Path) -> Report:
    options = Options(flags={"simulate": "h100:2"})
    project = Project(folder, None)
    return Configure(machine, project, options, Steps()).run()


def test_the_machine_of_these_tests_is_one_that_works(tmp_path: Path) -> None:
    machine = SlowMachine()
    report = configure(machine, tmp_path)
    assert report.error is None
    assert report.cluster.ready
    assert machine.killed == []
    assert len(machine.lines(" install ")) == 1


@pytest.mark.parametrize("program", ["", *ONE_BY_ONE])
def test_no_program_is_too_slow_for_the_way_to_the_first_job(program: str, tmp_path: Path) -> None:
    machine = SlowMachine(delays={program: DELAY_S})
    report = configure(machine, tmp_path)
    assert report.error is None
    assert report.cluster.ready
    assert [(step.name, step.state) for step in report.steps if step.state == "failed"] == []
    assert len(machine.lines(" install ")) == 1  # what is installed is not installed again
    assert machine.ready
    assert machine.lines(" srun ")


@pytest.mark.parametrize("program", ["compose", "buildx"])
def test_what_never_answers_is_said_before_anything_takes_long(
    program: str, tmp_path: Path
) -> None:
    machine = SlowMachine(delays={program: 10_000.0, "docker-compose": 10_000.0, "info": 10_000.0})
    machine.installed = True
    machine.programs |= {"docker", "docker-compose"}
    machine.files["/usr/local/lib/docker/cli-plugins/docker-compose"] = ""  # of no package
    report = configure(machine, tmp_path)
    assert report.error is not None
    assert report.error.exit_code == Exit.INCOMPLETE
    assert "did not answer" in report.error.brief
    assert "not known" in report.error.brief
    assert machine.lines(" install ") == []
    assert machine.lines(" pull ") == machine.lines(" build ") == []


def test_where_compose_never_answers_the_package_database_does(tmp_path: Path) -> None:
    machine = SlowMachine(delays={"version": 10_000.0, "info": 10_000.0})
    machine._install(())
    report = configure(machine, tmp_path)
    assert report.error is None
    assert report.cluster.ready
