"""What `podman info` says, as values and as Docker's API would say it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.machine import Reply
from dshpc_setup.podman_client import about
from dshpc_setup.probes import engine as probe

HERE = probe.ThisMachine("6.1.0", "box")


def info(rootless: bool = True, **host: Any) -> dict[str, Any]:
    """Of Podman 4.3.1, shortened."""
    ids = [
        {"container_id": 0, "host_id": 1000, "size": 1},
        {"container_id": 1, "host_id": 100000, "size": 65536},
    ]
    return {
        "host": {
            "arch": "amd64",
            "cgroupControllers": [] if rootless else ["memory", "pids"],
            "cgroupManager": "cgroupfs",
            "cgroupVersion": "v1",
            "cpus": 2,
            "hostname": "box",
            "idMappings": {"uidmap": ids, "gidmap": ids}
            if rootless
            else {"uidmap": None, "gidmap": None},
            "kernel": "6.1.0",
            "logDriver": "k8s-file",
            "memTotal": 25 << 30,
            "ociRuntime": {"name": "crun"},
            "security": {"rootless": rootless, "seccompEnabled": True, "selinuxEnabled": True},
            "serviceIsRemote": False,
            **host,
        },
        "store": {
            "graphDriverName": "vfs",
            "graphRoot": "/home/ada/.local/share/containers/storage",
        },
        "version": {"Version": "4.3.1"},
    }


def test_a_users_own() -> None:
    found = about.parse(json.dumps(info()))
    assert (found.version, found.rootless, found.remote, found.uids, found.gids) == (
        "4.3.1", True, False, 65537, 65537,
    )  # fmt: skip
    assert found.controllers == frozenset()
    reply = Reply("present", about.as_docker_says(found, "6.1.0", "podman"), "podman")
    engine = probe.parse(reply, HERE)
    assert (engine.kind, engine.by_command, engine.rootless) == ("podman", True, True)
    assert (engine.cgroup_driver, engine.cgroup_version) == ("none", 1)
    assert engine.security_options == ("name=seccomp", "name=selinux", "name=rootless")
    assert (engine.log_driver, engine.storage_driver, engine.server_version) == (
        "json-file", "vfs", "4.3.1",
    )  # fmt: skip


def test_roots() -> None:
    found = about.parse(json.dumps(info(rootless=False, cgroupVersion="v2")))
    assert min(found.uids, found.gids) >= about.LEAST_IDS
    reply = Reply("present", about.as_docker_says(found, "6.1.0", "podman"), "podman")
    engine = probe.parse(reply, HERE)
    assert (engine.cgroup_driver, engine.cgroup_version, engine.rootless) == ("cgroupfs", 2, False)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"host": {}}', '{"host": {"a": 1}, "version": {}}', "no"]
)
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        about.parse(text)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(info()["host"])), _ANY))
def test_any_host_is_taken(host: dict[str, Any]) -> None:
    found = about.parse(json.dumps(info(**host)))
    probe.parse(Reply("present", about.as_docker_says(found, "", "podman")), HERE)
