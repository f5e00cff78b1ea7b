"""The seccomp profile of the tier `enforced`, as the engine's library would judge a call by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dshpc_setup.render import seccomp

NEW_USER, NEW_NS, REMOUNT, BIND = 0x10000000, 0x20000, 0x20, 0x1000
SIGCHLD, THREAD = 17, 0x3D0F00  # what fork and pthread_create give clone


def verdict(profile: dict[str, Any], name: str, *arguments: int) -> str:
    """The action for a call; rules of one name are alternatives."""
    for rule in profile["syscalls"]:
        if name in rule["names"] and all(holds(each, arguments) for each in rule.get("args", ())):
            return str(rule.get("errnoRet") or rule["action"])
    return str(profile["defaultErrnoRet"])


def holds(condition: dict[str, Any], arguments: tuple[int, ...]) -> bool:
    value, given = condition["value"], arguments[condition["index"]]
    if condition["op"] == "SCMP_CMP_MASKED_EQ":
        return bool(given & value == condition["valueTwo"])
    return bool((given == value) is (condition["op"] == "SCMP_CMP_EQ"))


V1, V2, UNKNOWN, AMD = (
    json.loads(text)
    for text in (
        seccomp.profile(1),
        seccomp.profile(2),
        seccomp.profile(None),
        seccomp.profile(2, profiling=True),
    )
)
EVERY = pytest.mark.parametrize("profile", [V1, V2, UNKNOWN, AMD])
ALLOW, EPERM, ENOSYS = "SCMP_ACT_ALLOW", "1", "38"


@EVERY
@pytest.mark.parametrize(
    "name",
    [
        "unshare", "setns", "umount2", "pivot_root", "chroot", "keyctl", "add_key", "request_key",
        "open_by_handle_at", "init_module", "kexec_load", "userfaultfd", "io_uring_setup", "reboot",
        "settimeofday", "swapon", "sethostname", "syslog", "iopl", "quotactl", "fanotify_init",
    ],
)  # fmt: skip
def test_what_no_process_of_the_container_may_call(profile: dict[str, Any], name: str) -> None:
    assert verdict(profile, name) == EPERM


@EVERY
def test_no_namespace_is_made(profile: dict[str, Any]) -> None:
    """`unshare -Ur` gave a job of a user all capabilities in one."""
    assert verdict(profile, "clone", NEW_USER | SIGCHLD) == EPERM
    assert verdict(profile, "clone", NEW_NS | SIGCHLD) == EPERM
    assert verdict(profile, "clone", SIGCHLD) == ALLOW
    assert verdict(profile, "clone", THREAD) == ALLOW
    assert (
        verdict(profile, "clone3") == ENOSYS
    )  # its flags cannot be seen; the C library uses clone


@EVERY
def test_of_mounts_what_the_start_needs(profile: dict[str, Any]) -> None:
    assert verdict(profile, "mount", 0, 0, 0, REMOUNT | BIND) == ALLOW
    assert (
        verdict(profile, "mount", 0, 0, 0, REMOUNT | BIND | 0xE) == ALLOW
    )  # nosuid, nodev, noexec
    for flags in (0, BIND, REMOUNT):  # of a disk, of a folder, of a whole hierarchy
        assert verdict(profile, "mount", 0, 0, 0, flags) == EPERM
    for name in ("fsopen", "open_tree", "move_mount", "mount_setattr"):
        assert verdict(profile, name) == ENOSYS


def test_bpf_where_device_rules_are_programs() -> None:
    for profile in (V2, UNKNOWN, AMD):
        allowed = [order for order in range(40) if verdict(profile, "bpf", order) == ALLOW]
        assert allowed == [5, 8]  # BPF_PROG_LOAD, BPF_PROG_ATTACH
    assert all(verdict(V1, "bpf", order) == EPERM for order in range(40))


def test_a_debugger_works_and_amds_need_more() -> None:
    assert verdict(V2, "ptrace") == verdict(AMD, "ptrace") == ALLOW
    assert verdict(V2, "personality", 0x40000) == EPERM
    assert verdict(AMD, "personality", 0x40000) == ALLOW
    assert (verdict(V2, "perf_event_open"), verdict(AMD, "perf_event_open")) == (EPERM, ALLOW)


def test_another_text_has_another_name() -> None:
    one, other = seccomp.profile(1), seccomp.profile(2)
    assert seccomp.file_name(one) != seccomp.file_name(other)
    assert seccomp.file_name(one) == seccomp.file_name(seccomp.profile(1))


IMAGES = json.loads(seccomp.for_images())


def test_for_images_namespaces_of_users_and_mounts_alone() -> None:
    for flags in (NEW_USER, NEW_NS, NEW_USER | NEW_NS):
        assert verdict(IMAGES, "unshare", flags) == ALLOW
        assert verdict(IMAGES, "clone", flags | SIGCHLD) == EPERM
        for other in (0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000):
            assert verdict(IMAGES, "unshare", flags | other) == EPERM
    for name in ("mount", "umount2", "pivot_root", "chroot"):
        assert verdict(IMAGES, name, 0, 0, 0, 0) == ALLOW
    for name in ("setns", "bpf", "keyctl", "open_by_handle_at", "userfaultfd", "io_uring_setup"):
        assert verdict(IMAGES, name, 0) == EPERM
    assert verdict(IMAGES, "clone3") == verdict(IMAGES, "move_mount") == ENOSYS
