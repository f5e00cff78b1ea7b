"""Repairs that are commands of our own: what they call, what they keep, what they wait for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.cluster import operations
from dshpc_setup.diagnose import CheckInput, Finding
from dshpc_setup.diagnose.model import Section
from dshpc_setup.errors import DshpcError, Exit, Fix, RepairKind
from dshpc_setup.project.folder import Project
from dshpc_setup.repair import Outcome, RepairOptions, repair_findings
from dshpc_setup.repair.context import other_features
from dshpc_setup.setup import pipeline
from dshpc_setup.setup.report import Report
from tests.unit.cluster.conftest import GONE, INSPECT, container, project
from tests.unit.diagnose.known import known
from tests.unit.engine.fake import Answer, FakeMachine, Listener
from tests.unit.repair.test_run import RESTART, engine

__all__ = ["project"]  # a fixture

HEALTHY = "workstation-rtx4090/healthy"


def fault(section: Section, kind: RepairKind, identity: str = "DSH-XX-999") -> Finding:
    fix = (Fix("Do it", "a command", repair=(kind, "")),)
    return Finding(identity, section, "error", "Something is wrong", fix=fix)


def go(
    machine: FakeMachine, project: Project, finding: Finding, looked: CheckInput | None = None
) -> Outcome:
    gone = replace(finding, state="ok")
    options = RepairOptions(Listener(), lambda: (gone,), interactive=True)
    return repair_findings(machine, project, looked or known(HEALTHY), (finding,), options)


class Configured:
    """Stands in for a run of configure-environment: it writes gres.conf and ends as it is told."""

    text = "AutoDetect=off\nName=gpu File=/dev/nvidia0\n"
    error: DshpcError | None = None
    seen: list[tuple[Project, Any]]

    def __init__(self, machine: Any, project: Project, options: Any, reporter: Any) -> None:
        self.project, self.reporter = project, reporter
        type(self).seen.append((project, options))

    def run(self) -> Report:
        with self.project.lock():  # the lock is ours already: no refusal
            (self.project.folder / "config/gres.conf").write_text(self.text)
        self.reporter.begin("probe")
        return Report(error=self.error)


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> type[Configured]:
    class Run(Configured):
        seen: list[tuple[Project, Any]] = []  # noqa: RUF012 -- one a test

    monkeypatch.setattr(pipeline, "Configure", Run)
    return Run


RENDER = fault("files", "render")


def test_rendering_builds_nothing_and_keeps_what_it_changed(
    project: Project, configured: type[Configured]
) -> None:
    config = project.folder / "config"
    (config / "gres.conf").chmod(0o640)
    outcome = go(engine(), project, RENDER)
    ((_, options),) = configured.seen
    assert (options.build, options.start, options.dry_run) == (False, True, False)
    (copy,) = config.glob("*.dshpc-backup-*")
    assert copy.name.startswith("gres.conf.dshpc-backup-")
    assert (copy.read_text(), copy.stat().st_mode & 0o7777) == ("AutoDetect=off\n", 0o640)
    assert outcome.done[0].backups == (str(copy),)


def test_a_cluster_that_is_down_is_not_started_by_rendering(
    project: Project, configured: type[Configured]
) -> None:
    outcome = go(engine(), project, RENDER, known("workstation-rtx4090/slurm-exited"))
    ((_, options),) = configured.seen
    assert not options.start
    assert outcome.done[0].repair.shown() == ("configure-environment --no-build --no-start",)


def test_what_was_rendered_as_it_was_keeps_no_copy(
    project: Project, configured: type[Configured]
) -> None:
    configured.text = (project.folder / "config/gres.conf").read_text()
    outcome = go(engine(), project, RENDER)
    assert list(project.folder.rglob("*.dshpc-backup-*")) == []
    assert outcome.done[0].state == "done"


def test_an_error_of_rendering_is_the_repairs(
    project: Project, configured: type[Configured]
) -> None:
    configured.error = DshpcError("There is no image p-slurm:nvidia yet.")
    outcome = go(engine(), project, RENDER)
    assert outcome.done[0].error == configured.error
    assert outcome.done[0].backups, "what it had changed by then has a copy"


def test_ctrl_c_in_rendering_ends_all(project: Project, configured: type[Configured]) -> None:
    configured.error = DshpcError("Interrupted.", exit_code=Exit.INTERRUPTED)
    outcome = go(engine(), project, RENDER)
    assert outcome.interrupted
    assert outcome.done[0].state == "interrupted"
    assert outcome.done[0].backups


def test_under_sudo_files_belong_to_who_called_it(
    project: Project, configured: type[Configured], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = engine(**{"getent passwd 1000": Answer("ada:x:1000:1000::/home/ada:/bin/sh\n")})
    machine.commands = {
        "getent passwd 1000": Answer("ada:x:1000:1000::/home/ada:/bin/sh\n"),
        **machine.commands,
    }
    machine.env = {"SUDO_UID": "1000", "SUDO_GID": "1000", "HOME": "/root"}
    owners: list[object] = []
    monkeypatch.setattr("os.fchown", lambda _, *owner: owners.append(owner))
    go(machine, project, RENDER)
    ((given, _),) = configured.seen
    assert given.owner == (1000, 1000)
    assert set(owners) == {(1000, 1000)}


# -- the engine, with a cluster on it -----------------------------------------------------------------

NOT_RESTARTED = fault("engine", "restart-engine", "DSH-DK-008")


def ready() -> Answer:
    return Answer('{"ready": true}')


def test_the_cluster_that_ran_is_waited_for(project: Project) -> None:
    machine = engine(**{INSPECT: container(project), "docker exec p-slurm dshpc-node": ready()})
    outcome = go(machine, project, NOT_RESTARTED)
    order = [line for line in machine.lines() if line == RESTART or "dshpc-node wait" in line]
    assert [line.split()[0] for line in order] == ["systemctl", "docker"]
    assert outcome.done[0].state == "done"


def test_one_that_the_engine_did_not_start_again_is_started(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Path] = []
    monkeypatch.setattr(operations, "up", lambda _, given, __: started.append(given.folder))
    go(engine(**{INSPECT: GONE}), project, NOT_RESTARTED)
    assert started == [project.folder]


def test_one_that_was_down_before_stays_down(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "up", lambda *_: pytest.fail("started"))
    down = known("workstation-rtx4090/slurm-exited")
    outcome = go(engine(**{INSPECT: GONE}), project, NOT_RESTARTED, down)
    assert outcome.done[0].state == "done"


def test_a_cluster_that_does_not_come_up_is_a_note_and_no_failure_of_the_engine(
    project: Project,
) -> None:
    broken = Answer('{"failure": {"brief": "The key is damaged."}}', code=2)
    machine = engine(**{INSPECT: container(project), "docker exec p-slurm dshpc-node": broken})
    listener = Listener()
    options = RepairOptions(listener, lambda: (), interactive=True)
    outcome = repair_findings(machine, project, known(HEALTHY), (NOT_RESTARTED,), options)
    assert outcome.done[0].state == "done"
    assert "The cluster is not ready: The key is damaged." in listener.notes


def test_starting_the_cluster_is_dshpc_up(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(machine: object, given: Project, reporter: object) -> None:
        with given.lock():  # held already
            raise DshpcError("The image is not there.")

    monkeypatch.setattr(operations, "up", up)
    finding = fault("slurm", "start-cluster", "DSH-SL-001")
    outcome = go(engine(), project, finding, known("workstation-rtx4090/slurm-exited"))
    assert outcome.done[0].error == DshpcError("The image is not there.")
    assert outcome.exit_code == Exit.ERROR


def test_starting_the_cluster_anew_says_whose_jobs_end(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "restart", lambda *_: None)
    outcome = go(engine(), project, fault("slurm", "restart-cluster"))
    assert "1 container stops (p-slurm), and with it 2 running jobs" in outcome.done[0].repair.loss


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("", ()),
        ("{", ()),
        ('{"features": {"cdi": true}}', ()),
        ('{"features": {"cdi": true, "containerd-snapshotter": true, "buildkit": true}}',
         ("buildkit", "containerd-snapshotter")),
        ('{"features": []}', ()),
        ("[]", ()),
    ],
)  # fmt: skip
def test_features_of_daemon_json(text: str, features: tuple[str, ...]) -> None:
    assert other_features(text) == features
