"""Installing packages: the command lines, and what a failure is told as."""

from __future__ import annotations

import pytest

from dshpc_setup.engine import packages
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Platform
from tests.unit.engine.fake import Answer, FakeMachine, Listener, apt_lists

LINUX = Platform("linux", os_id="debian")


def debian(*known: str) -> FakeMachine:
    return FakeMachine(programs={"apt-get"}, commands={"apt-cache policy": apt_lists(*known)})


def apt(machine: FakeMachine, install: Answer | list[Answer], update: Answer | None = None) -> None:
    """Answers for the two apt-get calls, told apart by their last words."""
    queue = install if isinstance(install, list) else [install]

    def answer(command: tuple[str, ...]) -> Answer:
        if command[-1] == "update":
            return update or Answer()
        return queue.pop(0) if len(queue) > 1 else queue[0]

    machine.commands["env LC_ALL=C DEBIAN_FRONTEND=noninteractive"] = answer


def test_nothing_to_install_asks_nothing() -> None:
    packages.install(FakeMachine(), LINUX, [], Listener())


def test_apt_neither_asks_nor_removes_and_waits_for_the_lock() -> None:
    machine = debian("docker.io", "docker-cli")
    apt(machine, Answer("Setting up docker.io (26.1.5) ...\n"))
    listener = Listener()
    packages.install(machine, LINUX, ["docker.io", "docker-cli"], listener)
    (line,) = machine.lines("install")
    assert line.startswith("env LC_ALL=C DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-")
    assert line.endswith("install docker.io docker-cli")
    for flag in ("-y", "--no-remove", "DPkg::Lock::Timeout=600", "--no-install-recommends"):
        assert flag in line
    assert not machine.lines("update")
    assert "Setting up docker.io" in listener.heard[-1]


def test_unknown_names_fetch_the_lists_once() -> None:
    machine = debian()
    states = iter([Answer(), apt_lists("debootstrap")(("debootstrap",))])
    machine.commands["apt-cache policy"] = lambda _: next(states)
    apt(machine, Answer())
    packages.install(machine, LINUX, ["debootstrap"], Listener())
    assert len(machine.lines("apt-get -o DPkg::Lock::Timeout=600 -q update")) == 1
    assert len(machine.lines(" install ")) == 1


def test_a_name_that_no_repository_has_is_named() -> None:
    machine = debian("docker.io")
    apt(machine, Answer())
    with pytest.raises(DshpcError, match="have no docker-compose-v9") as caught:
        packages.install(machine, LINUX, ["docker.io", "docker-compose-v9"], Listener())
    assert "universe" in caught.value.resolution[0]
    assert not machine.lines(" install ")


def test_lists_that_cannot_be_fetched_are_the_reason_given() -> None:
    machine = debian()
    apt(machine, Answer(), update=Answer(code=100, stderr="E: Failed to fetch http://x"))
    with pytest.raises(DshpcError, match="could not be fetched") as caught:
        packages.install(machine, LINUX, ["debootstrap"], Listener())
    assert caught.value.details == "E: Failed to fetch http://x"


def test_stale_lists_are_fetched_and_it_is_tried_once_more() -> None:
    machine = debian("docker.io")
    stale = Answer(code=100, stderr="E: Failed to fetch http://m/docker.io_1.deb  404  Not Found")
    apt(machine, [stale, Answer()])
    packages.install(machine, LINUX, ["docker.io"], Listener())
    kinds = [line.rsplit(" ", 1)[1] for line in machine.lines("env ")]
    assert kinds == ["docker.io", "update", "docker.io"]


@pytest.mark.parametrize(
    ("text", "brief"),
    [
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 8", "at work"),
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk is too full"),
        ("E: dpkg was interrupted, you must manually run 'dpkg --configure -a'", "interrupted"),
        ("E: Packages need to be removed but remove is disabled.", "beside what is installed"),
        ("E: Sub-process returned an error code (1)", "apt-get could not install docker.io"),
    ],
)
def test_failures_say_what_to_do(text: str, brief: str) -> None:
    machine = debian("docker.io")
    apt(machine, Answer(code=100, stderr=text))
    with pytest.raises(DshpcError, match=brief) as caught:
        packages.install(machine, LINUX, ["docker.io"], Listener())
    assert text in caught.value.details
    assert caught.value.resolution


def test_an_installation_that_never_ends_is_told_as_such() -> None:
    machine = debian("docker.io")
    apt(machine, Answer("Unpacking", state="timeout"))
    with pytest.raises(DshpcError, match="not done after 30 minutes"):
        packages.install(machine, LINUX, ["docker.io"], Listener())


def test_sudo_hands_over_proxy_and_settings() -> None:
    machine = debian("docker.io")
    machine.uid, machine.env = 1000, {"https_proxy": "http://p:3128"}
    machine.programs.add("sudo")
    machine.commands["sudo"] = Answer()
    packages.install(machine, LINUX, ["docker.io"], Listener())
    line = machine.lines("install")[0]
    assert line.startswith("sudo -n env LC_ALL=C DEBIAN_FRONTEND=noninteractive")
    assert "https_proxy=http://p:3128" in line


@pytest.mark.parametrize("platform", [Platform("macos"), Platform("linux", os_id="nixos")])
def test_a_system_without_a_known_manager_is_told_the_names(platform: Platform) -> None:
    with pytest.raises(DshpcError, match="No way to install debootstrap"):
        packages.install(FakeMachine(), platform, ["debootstrap"], Listener())


@pytest.mark.parametrize(
    ("program", "query", "known", "unknown", "install"),
    [
        ("dnf", "dnf -q list", Answer("moby-engine.x86_64"), Answer(code=1), "dnf -y install"),
        (
            "zypper",
            "zypper -n --no-refresh search",
            Answer("| docker"),
            Answer(code=104),
            "zypper -n install --no-recommends",
        ),
        (
            "pacman",
            "pacman -Si",
            Answer("Name : docker"),
            Answer(code=1),
            "pacman -S --noconfirm --needed",
        ),
        ("apk", "apk search --exact", Answer("docker-26.1-r0\n"), Answer(""), "apk add"),
    ],
)
def test_the_other_managers(
    program: str, query: str, known: Answer, unknown: Answer, install: str
) -> None:
    machine = FakeMachine(programs={program}, commands={query: known, "env LC_ALL=C": Answer()})
    tool = packages.manager(machine)
    assert tool is not None
    assert packages.available(machine, tool, "docker")
    packages.install(machine, LINUX, ["docker"], Listener())
    assert machine.lines()[-1] == f"env LC_ALL=C {install} docker"
    machine.commands[query] = unknown
    assert not packages.available(machine, tool, "docker")


def test_pacman_never_takes_new_lists_without_an_upgrade() -> None:
    machine = FakeMachine(
        programs={"pacman"}, files={"/var/lib/pacman/sync/core.db": ""}, commands={}
    )
    tool = packages.manager(machine)
    assert tool is not None
    assert packages.refresh(machine, tool, Listener(), interactive=False) == ""
    assert machine.ran == []


@pytest.mark.parametrize(
    "text", ["docker:\n  Installed: (none)\n  Candidate: (none)\n", "", "N: Unable to locate"]
)
def test_apt_without_a_candidate_is_not_available(text: str) -> None:
    machine = FakeMachine(programs={"apt-get"}, commands={"apt-cache": Answer(text)})
    assert not packages.available(machine, packages.MANAGERS[0], "docker")
