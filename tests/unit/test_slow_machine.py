"""From the first question to the first job on machines whose programs take twenty seconds each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dshpc_setup.cli import exec as exec_command
from dshpc_setup.cli import exec_trouble, localhost
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import local
from dshpc_setup.project.folder import Project
from dshpc_setup.setup.pipeline import Configure
from dshpc_setup.setup.report import Report, Step, StepName
from dshpc_setup.setup.run import Options
from tests.unit.engine.fake import Answer, Listener
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


# After the first job: what `dshpc srun` asks itself, once its command has failed

RUNTIME = {"container": "dshpc-slurm", "work": "/w", "prefix": "dshpc"}
RUNNING = {
    "Id": "c", "Name": "/dshpc-slurm", "Image": "sha256:ours", "Created": "2026-01-01T00:00:00Z",
    "Config": {"Image": "dshpc-slurm", "Labels": {}}, "Mounts": [], "HostConfig": {},
    "State": {"Running": True, "Status": "running", "ExitCode": 0, "StartedAt": "2026-01-01T00:00:00Z"},
}  # fmt: skip


class Running(SlowMachine):
    """The same, with its cluster up. `counted`: what it says of its work folder's."""

    counted: Answer = Answer(code=1)

    def _inspect(self, command: tuple[str, ...]) -> Answer:
        return Answer(json.dumps([RUNNING]))

    @property
    def _world(self) -> dict[str, Answer | Callable[[tuple[str, ...]], Answer]]:
        inside = {
            r"docker exec \S+ test -d": Answer(),
            r"docker exec \S+ stat -c %h": self.counted,
            r"docker exec \S+ cat /run/dshpc/phase": Answer("ready\n1\n"),
            r"docker exec \S+ cat /run/dshpc/status.json": Answer('{"node": "lab"}'),
            r"docker exec \S+ scontrol show config": Answer("MaxJobCount = 100000\n"),
            r"docker exec \S+ squeue": Answer(),
        }
        return {**inside, **super()._world}


@pytest.mark.parametrize("code", [1, 2, 126, 127, 137])
@pytest.mark.parametrize("command", ["srun", "sbatch", "sacct", "exec"])
@pytest.mark.parametrize("program", ["", "docker", "inspect", "test", "cat", "scontrol", "squeue"])
def test_the_exit_code_of_a_command_is_no_slow_programs(
    program: str,
    command: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = Running(delays={program: DELAY_S})
    monkeypatch.setattr(local, "LocalMachine", lambda: machine)
    monkeypatch.chdir("/")
    exec_trouble.explain(exec_command.Call(command, ["false"], RUNTIME), code, folder_said=True)
    said = capsys.readouterr().err
    assert "has no folder" not in said
    assert "not there" not in said
    if program in ("", "docker", "inspect"):
        assert "did not answer" in said or "not known" in said


@pytest.mark.parametrize(("links", "there"), [("0", True), ("2", False), ("2", True)])
def test_a_work_folder_that_was_removed_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, links: str, there: bool
) -> None:
    """The container holds it still, also where a new one has its name."""
    work = str(tmp_path if there else tmp_path / "gone")
    machine = Running()
    machine.counted = Answer(f"{links}\n")
    monkeypatch.setattr(local, "LocalMachine", lambda: machine)
    call = exec_command.Call("srun", ["false"], {**RUNTIME, "work": work})
    if links == "2" and there:
        exec_trouble.explain(call, 255, folder_said=True)
        return
    with pytest.raises(DshpcError, match="was removed while the cluster ran") as raised:
        exec_trouble.explain(call, 255, folder_said=True)
    assert raised.value.resolution[-1].endswith("dshpc restart")
    assert any("mkdir" in step for step in raised.value.resolution) is not there


def test_a_slow_answer_leaves_localhost_the_usual_name() -> None:
    assert localhost.node(Running(), DOCKER, RUNTIME) == "lab"
    assert localhost.node(Running(delays={"cat": DELAY_S}), DOCKER, RUNTIME) == "dshpc"
