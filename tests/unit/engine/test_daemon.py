"""Starting the engine, and reading why it died."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine import daemon
from dshpc_setup.errors import DshpcError, Exit
from tests.unit.engine.fake import Answer, FakeMachine, Listener

DOWN = Answer(code=1, stderr="Cannot connect to the Docker daemon at unix:///var/run/docker.sock.")
UP = Answer("26.1.5+dfsg1\n")
ALIVE = "77 (dockerd (x) ) S 1 77 77 0"
NFT = (
    "failed to start daemon: Error initializing network controller: error obtaining controller "
    "instance: failed to create NAT chain DOCKER: iptables failed: iptables -t nat -N DOCKER: "
    "iptables/1.8.7 Failed to initialize nft: Protocol not supported\n (exit status 1)\n"
)


def bare(version: list[Answer], **files: str) -> FakeMachine:
    return FakeMachine(
        env={"PATH": "/usr/bin:/bin"},
        files={"/usr/sbin/dockerd": "", **{k.replace("_", "/"): v for k, v in files.items()}},
        commands={"docker version": version},
    )


def test_without_an_init_dockerd_runs_in_its_own_session() -> None:
    machine = bare([DOWN, UP], _proc_77_stat=ALIVE)
    daemon.start(machine, Listener(), interactive=False)
    ((argv, log),) = machine.daemons
    assert argv == ("env", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "/usr/sbin/dockerd")
    assert log == daemon.LOG


def test_a_daemon_that_dies_shows_its_last_words_and_the_reason() -> None:
    machine = bare([DOWN])
    machine.files[daemon.LOG] = "old run\n"

    def write_log(_: tuple[str, ...]) -> Answer:
        machine.files[daemon.LOG] = "old run\n" + NFT
        return DOWN

    machine.commands["docker version"] = write_log
    with pytest.raises(DshpcError, match="does not know nf_tables") as caught:
        daemon.start(machine, Listener(), interactive=False)
    assert "Failed to initialize nft" in caught.value.details
    assert "old run" not in caught.value.details
    assert caught.value.resolution[0].startswith("sudo update-alternatives --set iptables")


def test_a_zombie_is_dead() -> None:
    with pytest.raises(DshpcError, match="Docker did not start"):
        daemon.start(bare([DOWN], _proc_77_stat="77 (dockerd) Z 1"), Listener(), interactive=False)


def test_one_that_lives_but_never_answers_is_incomplete() -> None:
    machine = bare([DOWN], _proc_77_stat=ALIVE)
    with pytest.raises(DshpcError, match="did not answer within 90 seconds") as caught:
        daemon.start(machine, Listener(), interactive=False)
    assert caught.value.exit_code == Exit.INCOMPLETE


def test_a_dockerd_that_runs_already_is_waited_for() -> None:
    machine = bare(
        [DOWN, UP], _run_docker_pid="", _proc_5_stat="5 (dockerd) S 1", _proc_5_comm="dockerd\n"
    )
    machine.files["/run/docker.pid"] = "5"
    daemon.start(machine, Listener(), interactive=False)
    assert machine.daemons == []


def test_a_pid_file_of_another_program_is_stale() -> None:
    machine = bare([UP], _proc_5_stat="5 (bash) S 1", _proc_5_comm="bash\n", _proc_77_stat=ALIVE)
    machine.files["/run/docker.pid"] = "5"
    machine.commands["rm"] = Answer()
    daemon.start(machine, Listener(), interactive=False)
    # dockerd itself would refuse to start: some process has that number
    assert machine.lines("rm -f") == ["rm -f /run/docker.pid"]
    assert len(machine.daemons) == 1


def test_systemd_enables_and_starts_the_service() -> None:
    machine = bare([DOWN, UP])
    machine.files["/run/systemd/system"] = ""
    machine.commands["systemctl"] = Answer()
    daemon.start(machine, Listener(), interactive=False)
    assert machine.lines("systemctl") == ["systemctl enable --now docker"]


def test_a_service_that_fails_shows_the_journal() -> None:
    machine = bare([DOWN])
    machine.files["/run/systemd/system"] = ""
    machine.programs.add("journalctl")
    machine.commands["systemctl"] = Answer(code=1, stderr="Job for docker.service failed")
    machine.commands["journalctl"] = Answer("dockerd: failed to start: no space left on device\n")
    with pytest.raises(DshpcError, match="the disk is full") as caught:
        daemon.start(machine, Listener(), interactive=False)
    assert "sudo systemctl enable --now docker" in caught.value.resolution


def test_openrc_and_snap() -> None:
    alpine = bare([UP])
    alpine.files["/run/openrc"] = ""
    alpine.programs.add("rc-service")
    alpine.commands["rc-"] = Answer()
    daemon.start(alpine, Listener(), interactive=False)
    assert alpine.lines("rc-") == ["rc-update add docker default", "rc-service docker start"]
    snapped = FakeMachine(files={"/snap/bin/docker": "", "/run/systemd/system": ""})
    snapped.commands = {"snap": Answer(), "docker version": UP}
    daemon.start(snapped, Listener(), interactive=False)
    assert snapped.lines("snap") == ["snap start --enable docker"]


def test_through_sudo_the_daemon_is_parted_from_its_terminal() -> None:
    machine = bare([DOWN, UP], _proc_901_stat="901 (dockerd) S 1")
    machine.uid, machine.programs = 1000, {"sudo"}
    machine.commands["sudo"] = Answer("901\n")
    daemon.start(machine, Listener(), interactive=False)
    (line,) = machine.lines("nohup")
    assert line.startswith("sudo -n sh -c nohup setsid /usr/sbin/dockerd </dev/null >>")


def test_being_denied_is_an_answer() -> None:
    text = "permission denied while trying to connect to the Docker daemon socket"
    machine = FakeMachine(commands={"docker version": Answer(code=1, stderr=text)})
    assert daemon.answers(machine) == "denied"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (NFT, "nf_tables"),
        ("failed to start daemon: Devices cgroup isn't mounted", "cgroup file systems"),
        (
            "Error starting daemon: pid file found, ensure docker is not running or delete "
            "/var/run/docker.pid",
            "Another dockerd",
        ),
        (
            "failed to start daemon, ensure docker is not running or delete /var/run/docker.pid: "
            "process with PID 9 is still running",
            "Another dockerd",
        ),
        (
            "failed to start daemon: error initializing graphdriver: driver not supported",
            "storage driver",
        ),
        (
            "iptables v1.8.11 (nf_tables): Could not fetch rule set generation id: "
            "Permission denied (you must be root)",
            "may not set up the network",
        ),
        ("failed to create NAT chain DOCKER: Iptables not found", "iptables is missing"),
        (
            "modprobe: FATAL: Module ip_tables not found\n"
            "iptables v1.8.4 (legacy): can't initialize iptables table `nat'\n"
            "Perhaps iptables needs to be upgraded.",
            "lack its modules",
        ),
        (
            "unable to configure the Docker daemon with file /etc/docker/daemon.json: invalid "
            "character '}' looking for beginning of object key string",
            "configuration file",
        ),
        ("dockerd needs to be started with root privileges.", "full root rights"),
    ],
)
def test_last_words_that_are_known(log: str, reason: str) -> None:
    warning = 'time="x" level=warning msg="No space left on device"\n'
    found, steps = daemon.why(warning + log)
    assert reason in found
    assert steps


@given(st.text())
def test_other_last_words_give_no_reason_or_one_with_steps(log: str) -> None:
    reason, steps = daemon.why(log)
    assert bool(reason) == bool(steps)
