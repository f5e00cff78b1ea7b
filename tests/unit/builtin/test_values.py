"""What is read from the kernel and from files of people: any text is an answer, and the right one counts."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.builtin import accounts, filesystem, ids, launch, ports, processes, rights
from dshpc_setup.builtin.archive import Unpacked
from dshpc_setup.builtin.ids import Ids
from dshpc_setup.builtin.processes import Process, Stat
from dshpc_setup.builtin.rootfs import Rootfs
from dshpc_setup.builtin.wanted import (
    Device,
    Failure,
    Mount,
    Record,
    Wanted,
    read_record,
    read_wanted,
    write_record,
    write_wanted,
)
from dshpc_setup.errors import DshpcError

# /etc/subuid


def test_the_first_range_that_is_large_enough_counts() -> None:
    text = "bob:5:99999\nada:1:10\n1000:200000:65536\nada:300000:65536\n"
    assert ids.first_range(text, "ada", 1000) == 200000
    assert ids.first_range(text, "eve", 1001) is None
    assert ids.largest_range("ada:1:10\nada:5:20", "ada", 1000) == (5, 20)
    assert ids.first_range("ada:1:65535", "ada", 1000) is None, "nobody, 65534, would have no id"


@given(st.text(), st.text(min_size=1))
def test_any_text_has_a_range_or_none(text: str, name: str) -> None:
    found = ids.first_range(text, name, 1000)
    assert found is None or str(found) in text


def test_ids_of_a_namespace_are_one_s_own_and_the_range() -> None:
    mapped = Ids("mapped", 100, 200)
    assert ids.map_lines(mapped, 7, 100) == ((0, 100, 7), (7, 7, 1), (8, 107, 65529))
    assert ids.map_lines(mapped, 0, 100) == ((0, 0, 1), (1, 100, 65536))
    far = 1_234_567_890  # of a directory of users
    assert ids.map_lines(mapped, far, 100) == ((0, 100, 65536), (far, far, 1))
    assert ids.map_lines(Ids("single"), 1000, None) == ((0, 1000, 1),)


# Why there is no way


@pytest.mark.parametrize(
    ("number", "settings", "reason"),
    [
        (errno.ENOSPC, rights.Settings(limit=0), "limit"),
        (errno.EUSERS, rights.Settings(limit=9), "limit"),
        (errno.EPERM, rights.Settings(clone=0), "clone"),
        (errno.EPERM, rights.Settings(clone=1, apparmor=1), "apparmor"),
        (errno.EACCES, rights.Settings(apparmor=1, filtered=True), "apparmor"),
        (errno.EPERM, rights.Settings(apparmor=0, filtered=True), "seccomp"),
        (errno.EINVAL, rights.Settings(known=False), "kernel"),
        (errno.EPERM, rights.Settings(), "refused"),
        (None, rights.Settings(), "unanswered"),
    ],
)
def test_each_refusal_has_its_reason_and_what_root_can_do(
    number: int | None, settings: rights.Settings, reason: rights.Reason
) -> None:
    assert rights.why_refused(rights.Refusal("user", number), settings) == reason
    found = rights.Rights(None, reason)
    assert rights.fixes(found, "ada")
    with pytest.raises(DshpcError) as raised:
        rights.need(found, "ada")
    assert raised.value.steps == rights.fixes(found, "ada")


def test_a_way_that_is_less_than_the_best_says_what_it_takes() -> None:
    assert rights.fixes(rights.Rights(Ids("mapped", 1, 1)), "ada") == ()
    (fix,) = rights.fixes(rights.Rights(Ids("single"), lack="program"), "ada")
    assert "uidmap" in (fix.command or "")
    (fix,) = rights.fixes(rights.Rights(Ids("single"), lack="subuid"), "ada")
    assert (fix.command or "").endswith(" ada")


def test_root_of_a_namespace_may_be_alone_there() -> None:
    assert rights.has_all_ids("         0          0 4294967295\n")
    assert rights.has_all_ids("1 100000 65536\n0 1000 1\n"), "a rootless engine's container"
    assert not rights.has_all_ids("0 1000 1\n")
    assert not rights.has_all_ids("0 1000 1\n2 5 99999\n")
    assert not rights.has_all_ids("")


# /proc


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20))
def test_the_name_of_a_program_misleads_nobody(name: str) -> None:
    line = f"12 ({name}) S 3 12 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2"
    assert processes.parse_stat(line) == Stat("S", 3, 7, 98765)


@given(st.text())
def test_any_text_is_a_stat_or_none(text: str) -> None:
    processes.parse_stat(text)


@given(st.text(st.sampled_from("ab/ \t\n\\é"), min_size=1))
def test_a_mount_point_is_read_as_it_is(path: str) -> None:
    written = path.replace("\\", "\\134")
    for char, code in ((" ", "\\040"), ("\t", "\\011"), ("\n", "\\012")):
        written = written.replace(char, code)
    line = f"36 35 98:0 /m {written} rw,nosuid,relatime master:1 - ext3 /dev/root rw\n"
    (found,) = filesystem.parse_mountinfo(line)
    assert found.at == path


@given(st.text())
def test_any_text_holds_mounts_or_none(text: str) -> None:
    filesystem.parse_mountinfo(text)


# Recycled pids, and a machine that was restarted

ROOTFS = Rootfs("0" * 64, Ids("single"), "/cache", Unpacked(1, 2, 0, "x86_64"))
ME = processes.of(os.getpid()) or Process(0, 0, "")


def record(state: launch.State, supervisor: Process) -> Record:
    assert state != "gone"
    return Record("c", state, supervisor, init=supervisor, storage="overlay")


def test_a_container_whose_supervisor_lives_runs(tmp_path: Path) -> None:
    write_record(tmp_path, record("running", ME))
    assert launch.find(tmp_path).state == "running"


@pytest.mark.parametrize(
    "other",
    [
        replace(ME, ticks=ME.ticks + 1),  # the pid was given again
        replace(ME, boot="another"),  # the machine was restarted, and all begins at the same ticks
        Process(1 << 30, ME.ticks, ME.boot),
    ],
)
def test_no_other_process_is_taken_for_it(tmp_path: Path, other: Process) -> None:
    write_record(tmp_path, record("running", other))
    assert launch.find(tmp_path).state == "gone"
    assert not processes.send(other, 0)
    write_record(tmp_path, replace(record("exited", other), code=137))
    assert launch.find(tmp_path).code == 137


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "dshpc.builtin/1"}', '{"schema": 1}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert read_record(tmp_path) is None
    assert launch.find(tmp_path).state == "gone"


def test_what_is_wanted_travels_whole(tmp_path: Path) -> None:
    wanted = Wanted(
        "c",
        ROOTFS,
        str(tmp_path),
        ("/init", "an argument"),
        "node",
        {"A": "b"},
        (Mount("/a", "/b", True),),
        devices=(Device("/dev/null", "/dev/nvidia0"),),
    )
    write_wanted(wanted)
    assert read_wanted(tmp_path) == wanted
    failed = Record("c", "failed", ME, failure=Failure("mount", errno.ENOENT, "/a"))
    write_record(tmp_path, failed)
    assert read_record(tmp_path) == failed


# Users of a container

PASSWD = "root:x:0:0:root:/root:/bin/sh\nada:x:1000:100::/home/ada:/bin/sh\nbroken\n"
GROUP = "root:x:0:\nusers:x:100:ada\nvideo:x:44:bob,ada\nbroken\n"


@pytest.mark.parametrize(
    ("who", "found"),
    [
        ("root", (0, 0, (), "/root")),
        ("ada", (1000, 100, (44,), "/home/ada")),
        ("1000", (1000, 100, (44,), "/home/ada")),
        ("ada:video", (1000, 44, (), "/home/ada")),
        ("7:8", (7, 8, (), "/")),
        ("7", (7, 7, (), "/")),
    ],
)
def test_a_user_has_the_container_s_groups(
    who: str, found: tuple[int, int, tuple[int, ...], str]
) -> None:
    account = accounts.find(who, PASSWD, GROUP)
    assert account is not None
    assert (account.uid, account.gid, account.groups, account.home) == found


@pytest.mark.parametrize("who", ["eve", "", "ada:none", ":", "-1", "4294967295", "+7"])
def test_a_user_that_is_not_known_is_none(who: str) -> None:
    assert accounts.find(who, PASSWD, GROUP) is None


def test_where_there_is_one_id_everybody_has_it() -> None:
    passwd = accounts.with_one_id(PASSWD, (2, 3))
    assert passwd == "root:x:0:0:root:/root:/bin/sh\nada:x:0:0::/home/ada:/bin/sh\nbroken\n"
    assert accounts.with_one_id(GROUP, (2,)).splitlines()[1] == "users:x:0:ada"


@given(st.text(), st.text(), st.text())
def test_any_texts_hold_a_user_or_none(who: str, passwd: str, group: str) -> None:
    accounts.find(who, passwd, group)


# Ports


def test_ports_are_kept_and_no_two_are_alike(tmp_path: Path) -> None:
    file = tmp_path / "state" / "ports.json"
    names = ("controller", "node")
    first = ports.keep(file, "one", names, lambda _: True)
    other = ports.keep(file, "other", names, lambda _: True)
    assert len({*first.values(), *other.values()}) == 4
    assert all(ports.FIRST <= port <= ports.LAST for port in first.values())
    assert ports.keep(file, "one", names, lambda _: False) == first, "kept, whoever listens now"
    ports.forget(file, "other")
    assert ports.keep(file, "one", (*names, "rest"), lambda _: True).keys() == {*names, "rest"}


def test_a_port_of_another_cluster_is_not_given_again(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    left = [ports.FIRST, ports.FIRST + 1]
    first = ports.keep(file, "one", ("a",), left.__contains__)
    second = ports.keep(file, "two", ("a",), left.__contains__)
    assert sorted((first["a"], second["a"])) == left
    with pytest.raises(DshpcError):
        ports.keep(file, "three", ("a",), left.__contains__)


def test_a_file_of_ports_that_is_damaged_is_left_and_told(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    file.write_text("{")
    with pytest.raises(DshpcError):
        ports.keep(file, "one", ("a",), lambda _: True)
    assert file.read_text() == "{"


def test_who_has_an_id_of_the_range_is_in_the_container() -> None:
    former = "  0  1000  1\n  1  100000  65536\nbroken\n"
    assert ports.lent_ids(former, 1000) == (range(100000, 165536),)
    # As map_lines has them: root is the first of the range
    now = "0 100000 1001\n1001 1001 1\n1002 101001 64535\n"
    assert ports.lent_ids(now, 1001) == (range(100000, 101001), range(101001, 165536))
    assert ports.lent_ids("0 0 4294967295\n", 0) == (), "who looks sees every process then"


@pytest.mark.parametrize(
    ("env", "place"),
    [
        ({"HOME": "/h"}, "/h/.cache/dshpc/ports.json"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/s"}, "/s/dshpc/ports.json"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "relative"}, "/h/.cache/dshpc/ports.json"),
    ],
)
def test_the_file_of_ports_lies_where_xdg_says(env: Mapping[str, str], place: str) -> None:
    assert str(ports.registry(env)) == place
