"""Doing repairs: copies first, in order, asked for, looked at again. The machine is made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.diagnose import Finding
from dshpc_setup.diagnose.model import Section
from dshpc_setup.errors import DshpcError, Exit, Fix, RepairKind
from dshpc_setup.project.folder import Project
from dshpc_setup.repair import Done, Outcome, Repair, RepairOptions, repair_findings
from dshpc_setup.repair.engine_repairs import DAEMON_JSON
from dshpc_setup.repair.outcome import lines
from tests.unit.cluster.conftest import GONE, INSPECT, container, project
from tests.unit.cluster.running import TWO
from tests.unit.diagnose.known import findings, known
from tests.unit.engine.fake import Answer, FakeMachine, Listener

__all__ = ["project"]  # a fixture

NAME = "rtx4090-runtime-not-registered"
REGISTER = "nvidia-ctk runtime configure"
RESTART = "systemctl restart docker"
NO = Answer(code=1)


def engine(**commands: Answer) -> FakeMachine:
    """A root's machine with systemd and a Docker that answers; a copy of daemon.json can be made."""
    machine = FakeMachine(
        env={"HOME": "/root"},
        files={"/run/systemd/system": "", "/usr/bin/dockerd": "", DAEMON_JSON: "{}"},
        commands={
            f"test -e {DAEMON_JSON}.dshpc-backup": NO,
            "test -e": Answer(),
            "cp ": Answer(),
            "mv ": Answer(),
            "getent passwd": Answer("root:x:0:0:root:/root:/bin/sh\n"),
            "docker ps --format": Answer("other\np-slurm\n"),
            "docker ps -a": Answer("p-slurm\n"),
            "docker exec p-slurm squeue": Answer(TWO),
            "docker top p-slurm": Answer("1 slurmstepd: [7.batch]\n"),
            REGISTER: Answer(),
            "/usr/bin/dockerd --validate": Answer("configuration OK\n"),
            RESTART: Answer(),
            "docker version": Answer("26.1.5\n"),
        },
    )
    machine.commands.update(commands)
    return machine


def all_of(name: str = NAME) -> tuple[Finding, ...]:
    return tuple(findings(name).values())


def repaired_now(name: str = NAME) -> tuple[Finding, ...]:
    """As `again` answers where all faults are gone."""
    return tuple(
        replace(item, state="ok") if item.state in ("warn", "error") else item
        for item in all_of(name)
    )


def go(
    machine: FakeMachine,
    listener: Listener | None = None,
    *,
    again: Callable[[], tuple[Finding, ...]] = repaired_now,
    project: Project | None = None,
    name: str = NAME,
    **how: bool,
) -> Outcome:
    flags: dict[str, Any] = {"interactive": True, **how}
    options = RepairOptions(listener or Listener(), again, **flags)
    return repair_findings(machine, project, known(name), all_of(name), options)


def never() -> tuple[Finding, ...]:
    raise AssertionError("the checks are made again, and nothing was done")


def changing(machine: FakeMachine) -> list[str]:
    """Commands that change something."""
    looks = (
        "docker ps",
        "docker top",
        "docker exec p-slurm squeue",
        "getent",
        "test -e",
        "docker version",
    )
    return [line for line in machine.lines() if not line.startswith(looks)]


def test_it_copies_registers_restarts_and_looks_again() -> None:
    machine, listener = engine(), Listener()
    outcome = go(machine, listener)
    temporary = "/etc/docker/.daemon.json.dshpc-tmp"
    copy, move, *rest = changing(machine)
    assert copy == f"cp -p -- {DAEMON_JSON} {temporary}"
    (backup,) = outcome.done[0].backups
    assert backup.startswith(f"{DAEMON_JSON}.dshpc-backup-2")
    assert move == f"mv -- {temporary} {backup}"
    assert rest == [f"{REGISTER} --runtime=docker", "/usr/bin/dockerd --validate", RESTART]
    assert [item.state for item in outcome.done] == ["done", "done"]
    assert outcome.gone("DSH-DK-009") is True
    assert outcome.exit_code == Exit.OK
    said = "\n".join(lines(outcome))
    assert "Gone: DSH-DK-009" in said
    assert backup in said


def test_what_was_agreed_to_before_is_done_without_a_question() -> None:
    machine, listener = engine(), Listener()
    first = go(engine(), dry_run=True).done[0].repair
    options = RepairOptions(listener, repaired_now, agrees=lambda repair: repair == first)
    outcome = repair_findings(machine, None, known(NAME), all_of(NAME), options)
    assert listener.questions == []
    assert outcome.done[0].state == "done"
    assert {item.state for item in outcome.done[1:]} <= {"declined", "left-out"}


def test_the_question_says_what_stops() -> None:
    listener = Listener()
    go(engine(), listener)
    first, second = listener.questions
    assert first == "Register the runtime nvidia with Docker?"
    loss = "2 containers stop (other, p-slurm), and with them 2 running jobs"
    assert second == f"Restart Docker? {loss}."
    assert f"     {loss}" in listener.notes
    assert any("sudo systemctl restart docker" in note for note in listener.notes)
    assert any(f"{DAEMON_JSON}.dshpc-backup-TIME" in note for note in listener.notes)


def test_jobs_that_cannot_be_counted_are_not_called_none() -> None:
    machine, listener = engine(), Listener()
    machine.commands["docker exec p-slurm squeue"] = Answer(code=1, stderr="slurm_load_jobs error")
    go(machine, listener)
    assert "how many could not be asked" in listener.questions[1]


def test_a_dry_run_changes_nothing_and_shows_all() -> None:
    machine, listener = engine(), Listener()
    outcome = go(machine, listener, again=never, dry_run=True, interactive=False)
    assert changing(machine) == []
    assert listener.questions == []
    said = lines(outcome)
    assert "     sudo nvidia-ctk runtime configure --runtime=docker" in said
    assert said[-1] == "Nothing was changed (--dry-run)."
    assert outcome.exit_code == Exit.WARNING  # as the findings are


def test_without_a_terminal_and_without_yes_nothing_is_changed() -> None:
    machine, listener = engine(), Listener()
    outcome = go(machine, listener, again=never, interactive=False)
    assert changing(machine) == []
    assert listener.questions == []
    assert outcome.exit_code == Exit.ERROR
    assert outcome.error is not None
    assert "no terminal" in outcome.error.brief
    assert any("--yes" in step for step in outcome.error.resolution)
    # with --yes it goes on, and the reporter answers
    assert go(engine(), interactive=False, yes=True).exit_code == Exit.OK


def test_nothing_safe_to_fix_is_said_and_nothing_asked() -> None:
    machine, listener = engine(), Listener()
    outcome = go(machine, listener, again=never, name="rtx4090-toolkit-missing")
    assert (outcome.done, listener.questions) == ((), [])
    assert listener.notes[0] == "Nothing here is safe to fix automatically."
    assert "By hand: DSH-DK-007" in listener.notes[1]


def test_where_nothing_is_wrong_that_is_said() -> None:
    outcome = go(engine(), again=never, name="workstation-rtx4090", dry_run=True)
    assert lines(outcome) == ["There is nothing to fix.", "Nothing was changed (--dry-run)."]
    assert outcome.exit_code == Exit.OK


def test_a_no_leaves_out_what_comes_after() -> None:
    machine = engine()
    outcome = go(machine, Listener(answer=False), again=never)
    assert [item.state for item in outcome.done] == ["declined", "left-out"]
    assert changing(machine) == []
    assert outcome.exit_code == Exit.WARNING


def test_a_failure_stops_what_depends_on_it() -> None:
    machine = engine()
    machine.commands[REGISTER] = Answer(code=1, stderr="unable to load config: invalid JSON")
    outcome = go(machine, again=all_of)
    assert [item.state for item in outcome.done] == ["failed", "left-out"]
    assert RESTART not in machine.lines()
    assert outcome.exit_code == Exit.ERROR
    said = "\n".join(lines(outcome))
    assert "invalid JSON" in said
    assert "Still there: DSH-DK-009" in said
    assert "-> Register the runtime nvidia with Docker: sudo nvidia-ctk" in said


def test_and_not_the_others() -> None:
    machine = engine()
    machine.commands[REGISTER] = Answer(code=1)
    machine.commands["nvidia-modprobe"] = Answer()
    uvm = Finding("DSH-NV-015", "driver", "error", "/dev/nvidia-uvm is missing")
    options = RepairOptions(Listener(), lambda: (), interactive=True)
    outcome = repair_findings(machine, None, known(NAME), (*all_of(), uvm), options)
    states = {item.repair.kind: item.state for item in outcome.done}
    assert states == {
        "load-uvm": "done",
        "register-runtime": "failed",
        "restart-engine": "left-out",
    }


def test_where_no_copy_can_be_made_nothing_is_changed() -> None:
    machine = engine(**{"rm -f": Answer()})
    machine.commands["cp "] = Answer(code=1, stderr="cp: No space left on device")
    outcome = go(machine, again=all_of)
    assert not machine.lines(REGISTER)
    assert machine.lines("rm -f") == ["rm -f -- /etc/docker/.daemon.json.dshpc-tmp"]
    error = outcome.done[0].error
    assert error is not None
    assert "No space left" in error.details


def test_a_file_that_is_not_there_yet_has_no_copy() -> None:
    machine = engine()
    machine.commands["test -e"] = NO
    outcome = go(machine)
    assert outcome.done[0].state == "done"
    assert outcome.done[0].backups == ()
    assert not machine.lines("cp ")


@pytest.mark.parametrize(
    ("text", "validate"),
    [
        ('{"runtimes": ', Answer()),
        ("[]", Answer()),
        ("{}", Answer(code=1, stderr="the following directives don't match any configuration")),
    ],
)
def test_an_engine_that_would_not_come_back_is_not_restarted(text: str, validate: Answer) -> None:
    machine = engine(**{"/usr/bin/dockerd --validate": validate})
    machine.files[DAEMON_JSON] = text
    outcome = go(machine, again=all_of, name="rtx4090-toolkit-not-restarted")
    assert RESTART not in machine.lines()
    (done,) = outcome.done
    assert done.error is not None
    assert "would not start" in done.error.brief


def test_a_dockerd_that_cannot_try_its_configuration_is_restarted_all_the_same() -> None:
    old = Answer(code=1, stderr="Status: unknown flag: --validate")  # 20.10
    machine = engine(**{"/usr/bin/dockerd --validate": old})
    outcome = go(machine, name="rtx4090-toolkit-not-restarted")
    assert outcome.done[0].state == "done"


def test_an_engine_that_stays_away_names_the_copy_to_bring_back() -> None:
    machine = engine()
    machine.commands["docker version"] = Answer(code=1, stderr="Cannot connect")
    outcome = go(machine, again=all_of)
    register, restart = outcome.done
    assert (register.state, restart.state) == ("done", "failed")
    assert restart.error is not None
    assert f"sudo cp -p {register.backups[0]} {DAEMON_JSON}" in restart.error.resolution[1]


def test_through_sudo_each_command_goes_alone() -> None:
    machine = engine()
    machine.uid, machine.programs = 1000, {"sudo", "timeout"}
    machine.commands = {
        "sudo -n true": Answer(),
        f"sudo -n timeout -k 10 60 test -e {DAEMON_JSON}.dshpc": NO,
        "sudo -n timeout": Answer(),
        **machine.commands,
    }
    go(machine)
    ran = [line for line in machine.lines("sudo -n timeout") if "test -e" not in line]
    assert [line.split()[6] for line in ran] == [
        *("cp", "mv", "nvidia-ctk", "/usr/bin/dockerd", "systemctl"),
    ]


def test_without_root_the_commands_are_named() -> None:
    machine = engine()
    machine.uid = 1000
    outcome = go(machine, again=all_of)
    error = outcome.done[0].error
    assert error is not None
    assert error.brief == "This step needs root"


def test_ctrl_c_tells_what_was_done() -> None:
    machine = engine()

    def interrupted(_: tuple[str, ...]) -> Answer:
        raise KeyboardInterrupt

    machine.commands[RESTART] = interrupted
    outcome = go(machine, again=never)
    assert [item.state for item in outcome.done] == ["done", "interrupted"]
    assert outcome.exit_code == Exit.INTERRUPTED
    said = lines(outcome)
    assert said[0] == "Done: Register the runtime nvidia with Docker"
    assert "checks were not made again" in said[-1]


def test_ctrl_c_at_a_question_has_begun_nothing() -> None:
    class Impatient(Listener):
        def ask(self, question: str, *, by_yes: bool = True) -> bool:
            raise KeyboardInterrupt

    machine = engine()
    outcome = go(machine, Impatient(), again=never)
    assert [item.state for item in outcome.done] == ["left-out", "left-out"]
    assert outcome.interrupted
    assert changing(machine) == []


def test_checks_that_cannot_be_made_again_leave_it_unknown() -> None:
    def again() -> tuple[Finding, ...]:
        raise DshpcError("Cannot read dshpc.yaml.", exit_code=Exit.INCOMPLETE)

    outcome = go(engine(), again=again)
    assert outcome.gone("DSH-DK-009") is None
    assert outcome.exit_code == Exit.INCOMPLETE


def test_a_fault_that_comes_to_light_is_told() -> None:
    new = Finding("DSH-SL-001", "slurm", "error", "The cluster's container is stopped")
    outcome = go(engine(), again=lambda: (*repaired_now(), new))
    assert "New: DSH-SL-001" in lines(outcome)[-1]
    assert outcome.exit_code == Exit.ERROR


def test_the_object_of_json() -> None:
    value = go(engine()).to_json()
    assert json.loads(json.dumps(value))["repairs"] == value["repairs"]
    assert (value["schema"], value["exit_code"]) == ("dshpc.fix/1", 0)
    register, restart = value["repairs"]
    assert register["commands"] == ["sudo nvidia-ctk runtime configure --runtime=docker"]
    assert (register["state"], register["mends"], register["root"]) == (
        *("done", ["DSH-DK-009"], True),
    )
    assert restart["after"] == ["register-runtime:nvidia"]
    (finding,) = value["findings"]
    assert (finding["id"], finding["before"], finding["after"]) == ("DSH-DK-009", "warn", "ok")
    assert finding["gone"] is True
    assert value["doctor"]["schema"] == "dshpc.doctor/1"


def test_without_a_change_the_findings_are_those_of_before() -> None:
    value = go(engine(), dry_run=True).to_json()
    states = {it["id"]: it["state"] for it in value["doctor"]["findings"]}
    assert states["DSH-DK-009"] == "warn"
    done = Done(Repair("restrict-env", "Let only you read .env", ()), "done")
    gone = Outcome((), (done,), {}).to_json()
    assert gone["doctor"] is None  # something was changed, and not looked at again


# -- the project and its cluster ----------------------------------------------------------------------


def fault(identity: str, section: Section, kind: RepairKind, about: str = "") -> Finding:
    fix = (Fix("Do it", "a command", repair=(kind, about)),)
    return Finding(identity, section, "error", "Something is wrong", fix=fix)


def in_project(machine: FakeMachine, project: Project, finding: Finding) -> Outcome:
    gone = replace(finding, state="ok")
    options = RepairOptions(Listener(), lambda: (gone,), interactive=True)
    return repair_findings(
        machine, project, known("workstation-rtx4090/healthy"), (finding,), options
    )


def test_the_mode_of_env_is_restored(project: Project) -> None:
    env = project.folder / ".env"
    env.chmod(0o644)
    outcome = in_project(engine(), project, fault("DSH-FI-009", "files", "restrict-env"))
    assert env.stat().st_mode & 0o7777 == 0o600
    assert outcome.exit_code == Exit.OK


def test_a_link_in_its_place_is_left(project: Project, tmp_path: Path) -> None:
    target = tmp_path / "other"
    target.write_text("x")
    target.chmod(0o644)
    env = project.folder / ".env"
    env.unlink()
    env.symlink_to(target)
    outcome = in_project(engine(), project, fault("DSH-FI-009", "files", "restrict-env"))
    assert outcome.done[0].state == "failed"
    assert target.stat().st_mode & 0o7777 == 0o644


def test_two_at_once_are_refused(project: Project) -> None:
    with project.lock(), pytest.raises(DshpcError, match="Another run"):
        in_project(engine(), project, fault("DSH-FI-009", "files", "restrict-env"))


NODE = "NodeName=p State={state} Reason={reason} [{who}@2026-01-01T00:00:00]\n"
OUT = NODE.format(state="IDLE+DRAIN", reason="Not responding", who="slurm")
DRAIN = fault("DSH-SL-012", "slurm", "resume-node")


def cluster(project: Project, nodes: list[Answer]) -> FakeMachine:
    machine = engine(
        **{
            INSPECT: container(project),
            "docker exec p-slurm scontrol -o show node": Answer(),
            "docker exec p-slurm scontrol update": Answer(),
        }
    )
    machine.commands["docker exec p-slurm scontrol -o show node"] = nodes
    return machine


def drained(machine: FakeMachine, project: Project) -> Outcome:
    looked = known("workstation-rtx4090/healthy")
    # who drained it is asked of the container
    looked = replace(looked, observed=replace(looked.observed, inside=None))
    gone = replace(DRAIN, state="ok")
    options = RepairOptions(Listener(), lambda: (gone,), interactive=True)
    return repair_findings(machine, project, looked, (DRAIN,), options)


def test_a_node_of_our_own_doing_is_resumed(project: Project) -> None:
    machine = cluster(project, [Answer(OUT), Answer(OUT), Answer("NodeName=p State=IDLE \n")])
    outcome = drained(machine, project)
    assert machine.lines("update") == [
        "docker exec p-slurm scontrol update nodename=p state=resume"
    ]
    assert outcome.done[0].state == "done"


def test_one_that_a_person_took_out_meanwhile_is_left(project: Project) -> None:
    person = NODE.format(state="IDLE+DRAIN", reason="repair", who="ada")
    machine = cluster(project, [Answer(OUT), Answer(person)])
    outcome = drained(machine, project)
    assert machine.lines("update") == []
    assert outcome.done[0].error is not None
    assert "ada has drained it" in outcome.done[0].error.brief


def test_one_that_is_drained_again_at_once_is_a_failure(project: Project) -> None:
    outcome = drained(cluster(project, [Answer(OUT)]), project)
    assert outcome.done[0].state == "failed"


def test_the_container_of_another_is_not_touched(project: Project) -> None:
    machine = cluster(project, [Answer(OUT)])
    machine.commands[INSPECT] = container(Project(project.folder / "other"))
    outcome = drained(machine, project)
    assert machine.lines("update") == []
    assert outcome.done[0].state == "failed"


def test_the_key_is_given_back_and_closed(project: Project) -> None:
    machine = cluster(project, [])
    machine.commands["docker exec p-slurm chown"] = Answer()
    machine.commands["docker exec p-slurm chmod"] = Answer()
    in_project(machine, project, fault("DSH-SL-026", "slurm", "restrict-key"))
    assert machine.lines("slurm.key") == [
        "docker exec p-slurm chown slurm:slurm /var/lib/dshpc/key/slurm.key",
        "docker exec p-slurm chmod 600 /var/lib/dshpc/key/slurm.key",
    ]


def test_a_daemon_is_started_and_waited_for(project: Project) -> None:
    up = Answer("NodeName=p State=IDLE \n")
    machine = cluster(project, [Answer("NodeName=p State=DOWN* \n"), up])
    machine.commands["docker exec p-slurm s6-svc"] = Answer()
    order = "docker exec p-slurm s6-svc -u /run/dshpc/services/slurmd"
    outcome = in_project(machine, project, fault("DSH-SL-010", "slurm", "start-daemon", "slurmd"))
    assert machine.lines("s6-svc") == [order]
    assert outcome.done[0].state == "done"


def test_a_cluster_whose_container_is_gone_cannot_be_repaired(project: Project) -> None:
    machine = cluster(project, [])
    machine.commands[INSPECT] = GONE
    outcome = in_project(machine, project, fault("DSH-SL-026", "slurm", "restrict-key"))
    assert outcome.done[0].state == "failed"
    assert machine.lines("slurm.key") == []


def test_a_finding_that_cannot_be_looked_at_again_is_not_called_gone_or_there() -> None:
    blocked = [
        replace(item, state="skipped", cause="The engine does not answer.")
        if item.id == "DSH-DK-009"
        else item
        for item in repaired_now()
    ]
    outcome = go(engine(), again=lambda: tuple(blocked))
    assert outcome.gone("DSH-DK-009") is None
    assert any(
        line.startswith("Not known: DSH-DK-009") and line.endswith("The engine does not answer.")
        for line in lines(outcome)
    )
