"""Who called us, and how root is had."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine import privilege
from dshpc_setup.errors import DshpcError
from tests.unit.engine.fake import Answer, FakeMachine

ADA = "ada:x:1000:1001:Ada,,,:/home/ada:/bin/bash\n"
DOMAIN = "DOM\\bob:*:70001:70000:Bob:/home/DOM/bob:/bin/sh\n"


def people(uid: int = 0, **env: str) -> FakeMachine:
    return FakeMachine(
        uid=uid,
        env=env,
        commands={
            "getent passwd 1000": Answer(ADA),
            "getent passwd 70001": Answer(DOMAIN),
            "getent passwd 0": Answer("root:x:0:0:root:/root:/bin/bash\n"),
            "getent passwd": Answer(code=2),
            "id -g": Answer("4242\n"),
        },
    )


def test_a_plain_user_is_the_caller() -> None:
    assert privilege.caller(people(1000)) == privilege.Caller(1000, 1001, "ada", "/home/ada")


def test_under_sudo_the_caller_is_who_called_sudo() -> None:
    machine = people(0, SUDO_UID="1000", SUDO_GID="1001", SUDO_USER="ada", HOME="/root")
    assert privilege.caller(machine) == privilege.Caller(1000, 1001, "ada", "/home/ada", True)


def test_a_group_changed_by_newgrp_before_sudo_is_kept() -> None:
    assert privilege.caller(people(0, SUDO_UID="1000", SUDO_GID="50")).gid == 50


@pytest.mark.parametrize("text", ["", "0", "-1", "1000; id", "ada", "1e3", "99999999999"])
def test_a_sudo_uid_that_is_no_users_is_not_believed(text: str) -> None:
    found = privilege.caller(people(0, SUDO_UID=text, SUDO_USER="ada"))
    assert (found.uid, found.name, found.via_sudo) == (0, "root", False)


def test_sudo_uid_counts_for_root_only() -> None:
    found = privilege.caller(people(1000, SUDO_UID="70001"))
    assert (found.uid, found.via_sudo) == (1000, False)


def test_the_database_and_not_sudo_user_names_the_caller() -> None:
    assert privilege.caller(people(0, SUDO_UID="1000", SUDO_USER="mallory")).name == "ada"


def test_a_domain_user_keeps_the_backslash() -> None:
    found = privilege.caller(people(0, SUDO_UID="70001"))
    assert (found.name, found.gid, found.home) == ("DOM\\bob", 70000, "/home/DOM/bob")


def test_a_uid_without_an_entry_has_a_stable_name() -> None:
    machine = people(4321, HOME="/data")
    assert privilege.caller(machine) == privilege.Caller(4321, 4242, "user4321", "/data")
    assert privilege.caller(machine) == privilege.caller(machine)
    assert privilege.caller(people(0, SUDO_UID="4321", SUDO_GID="9")).name == "user4321"


def test_without_getent_the_file_is_read() -> None:
    machine = FakeMachine(
        uid=1000,
        files={"/etc/passwd": "root:x:0:0::/root:/bin/sh\n" + ADA},
        commands={"getent": Answer(state="absent")},
    )
    assert privilege.caller(machine).name == "ada"


def test_macos_is_asked_its_own_way() -> None:
    machine = FakeMachine(
        uid=501,
        system=("Darwin", "24.0.0", "arm64"),
        commands={
            "getent": Answer(state="absent"),
            "id -P 501": Answer("ada:********:501:20::0:0:Ada L:/Users/ada:/bin/zsh\n"),
        },
    )
    assert privilege.caller(machine) == privilege.Caller(501, 20, "ada", "/Users/ada")


@given(st.text(), st.integers(0, 2**32))
def test_any_text_is_parsed_to_an_entry_of_that_uid_or_none(text: str, uid: int) -> None:
    found = privilege.parse_passwd(text, uid)
    assert found is None or (found.uid == uid and found.name and found.home.startswith("/"))


def test_root_runs_commands_unchanged() -> None:
    machine = FakeMachine(uid=0)
    assert privilege.as_root(machine, ["mount", "x"], interactive=False) == ["mount", "x"]
    assert machine.ran == []


def sudoer(free: bool) -> FakeMachine:
    return FakeMachine(
        uid=1000,
        programs={"sudo", "timeout"},
        commands={"sudo -n true": Answer(code=0 if free else 1), "sudo": Answer("done")},
    )


def test_sudo_without_a_password_never_asks() -> None:
    argv = privilege.as_root(sudoer(True), ["id"], interactive=True, env={"A": "1 2"})
    assert argv == ["sudo", "-n", "env", "A=1 2", "id"]


def test_sudo_asks_only_at_a_terminal() -> None:
    assert privilege.as_root(sudoer(False), ["id"], interactive=True) == ["sudo", "id"]
    with pytest.raises(DshpcError) as caught:
        privilege.as_root(sudoer(False), ["id"], interactive=False, by_hand=[["a", "b c"], ["d"]])
    assert caught.value.resolution[:2] == ("sudo a 'b c'", "sudo d")
    assert "password" in caught.value.details


def test_without_sudo_the_list_is_told() -> None:
    with pytest.raises(DshpcError) as caught:
        privilege.as_root(FakeMachine(uid=1000), ["apt-get", "install", "x"], interactive=True)
    assert caught.value.resolution[0] == "sudo apt-get install x"
    assert "no sudo" in caught.value.details


def test_the_deadline_goes_along_with_sudo() -> None:
    machine = sudoer(True)
    assert privilege.run_as_root(machine, ["id"], interactive=False, deadline_s=90).ok
    assert machine.lines()[-1] == "sudo -n timeout -k 10 90 id"


def test_a_deadline_kept_by_timeout_reads_as_one() -> None:
    machine = sudoer(True)
    machine.commands["sudo"] = Answer(code=124)
    done = privilege.run_as_root(machine, ["id"], interactive=False, deadline_s=30)
    assert (done.state, done.code) == ("timeout", None)


def test_a_user_whom_sudo_refuses_is_told_so() -> None:
    machine = sudoer(False)
    machine.commands["sudo"] = Answer(code=1, stderr="ada is not in the sudoers file.")
    with pytest.raises(DshpcError, match="sudo does not let"):
        privilege.run_as_root(machine, ["id"], interactive=True, deadline_s=30)


@given(st.lists(st.lists(st.text(min_size=1), min_size=1), min_size=1))
def test_steps_can_be_copied_into_a_shell(commands: list[list[str]]) -> None:
    for command, line in zip(commands, privilege.steps(commands), strict=True):
        assert shlex.split(line) == ["sudo", *command]
