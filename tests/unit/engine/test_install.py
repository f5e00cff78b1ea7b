"""What is done, asked and said for each state of the engine."""

from __future__ import annotations

import pytest

from dshpc_setup.engine.install import EngineOutcome, ensure_engine
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.facts import Compose, Engine
from tests.unit.engine.fake import Answer, FakeMachine, Listener, apt_lists, facts

TRIXIE = ("docker.io", "docker-cli", "docker-compose", "docker-buildx", "ca-certificates")
BOOKWORM = ("docker.io", "docker-compose", "ca-certificates")
NOBLE = ("docker.io", "docker-compose", "docker-compose-v2", "docker-buildx", "ca-certificates")
ABSENT = Engine("absent", host="unix:///var/run/docker.sock")


def machine(*lists: str) -> FakeMachine:
    return FakeMachine(
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        programs={"apt-get"},
        files={"/proc/77/stat": "77 (dockerd) S 1"},
        commands={
            "apt-cache policy": apt_lists(*lists),
            "env LC_ALL=C DEBIAN_FRONTEND=noninteractive": Answer(),
            "docker version": [Answer(state="absent"), Answer("26.1.5\n")],
            "getent group docker": Answer("docker:x:998:\n"),
            "getent passwd": Answer("ada:x:1000:1000::/home/ada:/bin/sh\n"),
        },
    )


def ensure(
    on: FakeMachine,
    engine: Engine,
    listener: Listener | None = None,
    kind: str = "linux",
    os_id: str = "debian",
) -> EngineOutcome:
    seen = facts(engine, kind, os_id)  # type: ignore[arg-type]  # parametrized as text
    return ensure_engine(on, seen, listener or Listener(), interactive=False)


def refusal(on: FakeMachine, engine: Engine, **given: str) -> DshpcError:
    """The error for a machine that nothing may be installed on."""
    listener = Listener()
    with pytest.raises(DshpcError) as caught:
        ensure(on, engine, listener, **given)
    assert listener.questions == []
    assert on.lines("install") == []
    assert on.daemons == []
    return caught.value


def test_an_engine_with_compose_is_left_alone() -> None:
    on = FakeMachine()
    engine = Engine("present", compose=Compose("2.26.1", ("docker", "compose")))
    assert not ensure(on, engine).changed
    assert on.ran == []


@pytest.mark.parametrize(
    ("lists", "installed"),
    [
        (TRIXIE, "docker.io docker-cli ca-certificates docker-buildx docker-compose"),
        (BOOKWORM, "docker.io ca-certificates docker-compose"),
        (NOBLE, "docker.io ca-certificates docker-buildx docker-compose-v2"),
        (
            (*TRIXIE, "docker-ce", "docker-ce-cli", "containerd.io", "docker-compose-plugin"),
            "docker-ce docker-ce-cli containerd.io docker-buildx-plugin docker-compose-plugin",
        ),
    ],
    ids=["trixie", "bookworm", "noble", "docker's own repository"],
)
def test_what_the_lists_hold_is_asked_for_installed_and_started(
    lists: tuple[str, ...], installed: str
) -> None:
    on = machine(*lists, "docker-buildx-plugin" if "docker-ce" in lists else "docker.io")
    listener = Listener()
    outcome = ensure(on, ABSENT, listener)
    assert " ".join(outcome.installed) == installed
    assert outcome.started
    assert installed in listener.questions[0]
    assert on.lines(" install ")[0].endswith(f"install {installed}")
    assert len(on.daemons) == 1


def test_lists_that_were_never_fetched_are_fetched_after_the_question() -> None:
    on = machine()
    full = apt_lists(*TRIXIE)

    def policy(command: tuple[str, ...]) -> Answer:
        return full(command) if on.lines("-q update") else Answer()

    on.commands["apt-cache policy"] = policy
    assert "docker.io" in ensure(on, ABSENT).installed
    assert len(on.lines("-q update")) == 1


def test_refusing_changes_nothing_and_leaves_the_list() -> None:
    on = machine(*TRIXIE)
    with pytest.raises(DshpcError, match="Docker is not installed") as caught:
        ensure(on, ABSENT, Listener(answer=False))
    assert on.lines("install") == []
    assert caught.value.resolution[0].startswith("sudo apt-get install docker.io docker-cli")
    assert "--yes" in caught.value.resolution[-1]


def test_without_root_and_sudo_the_list_is_told_before_anything_runs() -> None:
    on = machine(*TRIXIE)
    on.uid = 1000
    with pytest.raises(DshpcError, match="needs root") as caught:
        ensure(on, ABSENT)
    assert on.lines("install") == []
    assert len(caught.value.resolution) == 3


def test_an_engine_that_systemd_started_at_the_installation_is_not_started_again() -> None:
    on = machine(*TRIXIE)
    on.commands["docker version"] = Answer("26.1.5")
    assert ensure(on, ABSENT).started
    assert on.daemons == []


def test_whoever_installs_through_sudo_hears_about_the_group() -> None:
    on = machine(*TRIXIE)
    on.uid = 1000
    on.programs.add("sudo")
    on.commands["sudo"] = Answer()
    on.commands["docker version"] = Answer(code=1, stderr="permission denied while trying")
    with pytest.raises(DshpcError, match="Docker runs, but ada may not use it") as caught:
        ensure(on, ABSENT)
    assert caught.value.resolution[0] == "sudo usermod -aG docker ada"


def test_an_installed_engine_is_started_after_a_question() -> None:
    on = machine()
    on.files["/usr/sbin/dockerd"] = ""
    on.programs.add("docker")
    on.commands["docker version"] = [Answer("26.1.5")]
    listener = Listener()
    assert ensure(on, ABSENT, listener) == EngineOutcome(started=True)
    assert "Start it?" in listener.questions[0]
    with pytest.raises(DshpcError, match="does not run") as caught:
        ensure(on, ABSENT, Listener(answer=False))
    assert "dockerd" in caught.value.resolution[0]


def test_an_engine_without_its_client_gets_that_first() -> None:
    on = machine("docker-cli")
    on.files["/usr/sbin/dockerd"] = ""
    assert ensure(on, ABSENT).installed == ("docker-cli",)


@pytest.mark.parametrize(
    ("lists", "name"), [(BOOKWORM, "docker-compose"), (NOBLE, "docker-compose-v2")]
)
def test_a_missing_compose_is_installed(lists: tuple[str, ...], name: str) -> None:
    on = machine(*lists)
    on.programs.add("docker")
    outcome = ensure(on, Engine("present"))
    assert outcome == EngineOutcome(installed=(name,))


def test_a_system_that_has_no_compose_says_where_to_get_it() -> None:
    on = machine("docker.io")
    on.programs.add("docker")
    with pytest.raises(DshpcError, match="neither `docker compose` nor") as caught:
        ensure(on, Engine("present"))
    assert "cli-plugins" in caught.value.resolution[0]


@pytest.mark.parametrize("host", ["tcp://10.0.0.5:2375", "ssh://me@far", "unix:///tmp/x.sock"])
@pytest.mark.parametrize("state", ["absent", "error", "timeout", "denied"])
def test_a_dead_endpoint_is_named_and_nothing_installed(host: str, state: str) -> None:
    engine = Engine(state, host="unix:///var/run/docker.sock")  # type: ignore[arg-type]
    on = machine(*TRIXIE)
    on.env = {"DOCKER_HOST": host}
    assert host in refusal(on, engine).brief
    by_context = Engine(state, host=host)  # type: ignore[arg-type]
    assert host in refusal(machine(*TRIXIE), by_context).brief


def test_a_rootless_engine_is_started_by_its_own_user() -> None:
    error = refusal(machine(), Engine("absent", host="unix:///run/user/1000/docker.sock"))
    assert "systemctl --user start docker" in error.resolution[0]


def test_denied_is_the_group_or_sudo() -> None:
    on = machine()
    on.uid = 1000
    error = refusal(on, Engine("denied"))
    assert error.resolution[0] == "sudo usermod -aG docker ada"
    assert "sudo in front" in error.resolution[2]


def test_denied_to_a_member_is_an_old_login() -> None:
    on = machine()
    on.uid = 1000
    on.commands["getent group docker"] = Answer("docker:x:998:bob,ada\n")
    error = refusal(on, Engine("denied"))
    assert "this login does not know it yet" in error.brief
    assert not any("usermod" in step for step in error.resolution)


def test_a_name_with_a_backslash_is_quoted_for_the_shell() -> None:
    on = machine()
    on.uid = 1000
    on.commands["getent passwd"] = Answer("DOM\\bob:x:1000:1000::/home/bob:/bin/sh\n")
    assert refusal(on, Engine("denied")).resolution[0] == "sudo usermod -aG docker 'DOM\\bob'"


def test_an_engine_that_hangs_is_not_started_again() -> None:
    assert refusal(machine(), Engine("timeout")).exit_code == Exit.INCOMPLETE


def test_an_engine_that_answers_nonsense_is_not_started_again() -> None:
    on = machine()
    on.files |= {"/run/docker.pid": "77", "/proc/77/comm": "dockerd", "/usr/bin/dockerd": ""}
    assert "answers with an error" in refusal(on, Engine("error", detail="boom")).brief


def test_macos_and_wsl1_install_nothing() -> None:
    assert "colima" in " ".join(refusal(machine(), ABSENT, kind="macos").resolution)
    desktop = machine()
    desktop.files["/Applications/Docker.app"] = ""
    assert "open -a Docker" in refusal(desktop, ABSENT, kind="macos").resolution[0]
    assert "WSL 1" in refusal(machine(*TRIXIE), ABSENT, kind="wsl1").brief


def test_wsl2_with_docker_desktop_says_to_start_it() -> None:
    on = machine(*TRIXIE)
    on.programs.add("docker")
    on.links["/usr/bin/docker"] = "/mnt/wsl/docker-desktop/cli-tools/usr/bin/docker"
    assert "Docker Desktop" in refusal(on, ABSENT, kind="wsl2").brief


def test_wsl2_without_it_installs_the_packages() -> None:
    assert "docker.io" in ensure(machine(*TRIXIE), ABSENT, kind="wsl2").installed


def test_podman_under_dockers_name_is_recognised() -> None:
    on = machine(*TRIXIE)
    on.programs.add("docker")
    on.commands["docker --version"] = Answer("podman version 5.4.0\n")
    assert "Podman" in refusal(on, ABSENT).brief


def test_a_client_alone_is_no_engine() -> None:
    on = machine(*TRIXIE)
    on.programs.add("docker")
    on.commands["docker --version"] = Answer("Docker version 28.2.2, build e6534b4\n")
    assert "docker.io" in ensure(on, ABSENT).installed


def test_red_hats_systems_are_told_about_dockers_repository() -> None:
    on = machine()
    on.programs = {"dnf"}
    on.commands |= {"dnf -q list": Answer(code=1), "env LC_ALL=C dnf makecache": Answer()}
    with pytest.raises(DshpcError, match="rocky has no Docker engine") as caught:
        ensure(on, ABSENT, os_id="rocky")
    assert any("centos/docker-ce.repo" in step for step in caught.value.resolution)
    assert not on.lines("install")


def test_no_package_manager_at_all() -> None:
    on = machine()
    on.programs = set()
    assert "no package manager" in refusal(on, ABSENT, os_id="nixos").brief
