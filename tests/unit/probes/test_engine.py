"""What kind of engine answers, which tools are beside it, and what its machine allows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Because, Compose, Conclusion, Cpu, Engine, Memory, State
from dshpc_setup.machine import Reply
from dshpc_setup.probes import compose, engine, engine_limits
from dshpc_setup.probes.engine import ThisMachine
from tests.unit.probes.written import written

HERE = ThisMachine("6.8.0-60-generic", "node7")
OURS = {"KernelVersion": HERE.release, "Name": "node7"}
SOCKET = "unix:///var/run/docker.sock"


@pytest.mark.parametrize(
    ("version", "info", "host", "expected"),
    [
        ({}, OURS, SOCKET, "engine"),
        ({"Components": [{"Name": "Podman Engine"}]}, OURS, SOCKET, "podman"),
        ({}, {**OURS, "OperatingSystem": "Docker Desktop"}, SOCKET, "desktop"),
        ({}, {**OURS, "DockerRootDir": "/var/snap/docker/common/x"}, SOCKET, "snap"),
        ({}, {**OURS, "KernelVersion": "6.10.14-linuxkit"}, SOCKET, "remote"),
        ({}, OURS, "ssh://me@node7", "remote"),
        # a server like ours, with the same kernel
        ({}, {**OURS, "Name": "node8"}, "tcp://10.0.0.8:2376", "remote"),
        ({}, {**OURS, "Name": "node7.example"}, "tcp://10.0.0.7:2376", "engine"),
        ({}, {**OURS, "Name": "vm"}, "tcp://127.0.0.1:2375", "engine"),
        ({}, {**OURS, "Name": "vm"}, "tcp://localhost:2375", "engine"),
        ({}, {**OURS, "Name": "vm"}, "tcp://localhost.example:2375", "remote"),
        ({}, {}, SOCKET, "engine"),
    ],
)
def test_kinds(version: Any, info: Any, host: str, expected: str) -> None:
    kind = engine.kind_of(version, info, host, HERE)
    assert kind.name == expected
    assert kind.says


def test_a_tree_without_a_kernels_name_makes_no_engine_a_remote_one() -> None:
    assert engine.kind_of({}, OURS, SOCKET, ThisMachine()).name == "engine"


def test_all_that_the_engine_says_is_kept() -> None:
    info = {
        **OURS,
        "DefaultRuntime": "nvidia",
        "Runtimes": {"runc": {}, "nvidia": {}},
        "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"],
        "DiscoveredDevices": [
            {"Source": "cdi", "ID": "nvidia.com/gpu=all"},
            {"Source": "cdi", "ID": "nvidia.com/gpu=0"},
            {"Source": "other", "ID": "x"},
            "garbage",
        ],
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=selinux", "name=rootless"],
        "CgroupVersion": "2",
        "MemTotal": 8 << 30,
        "NCPU": 4,
    }
    value = {"version": {"Version": "28.3.2"}, "info": info, "host": SOCKET, "context": "work"}
    fact = engine.parse(Reply("present", value), HERE)
    assert (fact.default_runtime, fact.runtimes) == ("nvidia", ("nvidia", "runc"))
    assert fact.cdi_folders == ("/etc/cdi", "/var/run/cdi")
    assert fact.cdi_devices == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert (fact.rootless, fact.context, fact.cgroup_version) == (True, "work", 2)
    assert (fact.cpus, fact.memory_mib) == (4, 8192)
    assert "name=selinux" in fact.security_options


@pytest.mark.parametrize("state", ["absent", "denied", "timeout", "error"])
def test_an_engine_that_does_not_answer_is_not_known(state: State) -> None:
    value = {"host": SOCKET, "context": "work"}
    fact = engine.parse(Reply(state, value, SOCKET, "why"), HERE)
    assert fact == Engine(state, host=SOCKET, context="work", detail="why")


def test_garbage_is_an_error_with_its_text() -> None:
    value = {"version": {"Version": "1"}, "info": "<html>login</html>", "host": SOCKET}
    fact = engine.parse(Reply("present", value), HERE)
    assert fact.state == "error"
    assert "<html>login</html>" in (fact.detail or "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["Components", "Name", "Runtimes", "SecurityOptions", "DiscoveredDevices", "NCPU",
             "MemTotal", "KernelVersion", "CgroupVersion", "CDISpecDirs", "DefaultRuntime", "ID",
             "Source", "DockerRootDir", "OperatingSystem", "ApiVersion", "Version"]
        )
        | st.text(max_size=8),
        inner,
        max_size=6,
    ),
    max_leaves=25,
)  # fmt: skip


@given(version=JSON, info=JSON, host=JSON, whole=JSON)
def test_nothing_that_docker_says_trips_the_probe(
    version: Any, info: Any, host: Any, whole: Any
) -> None:
    for value in (whole, {"version": version, "info": info, "host": host, "context": host}):
        fact = engine.parse(Reply("present", value), HERE)
        assert fact.state == "present" or fact.detail
        assert fact.cpus is None or fact.cpus > 0


# --- the tools ---

EASY_INSTALL = "#!/usr/bin/python3\n# EASY-INSTALL-ENTRY-SCRIPT: 'docker-compose==1.29.2','x'\n"
NO_PLUGIN = {"argv": ["docker", "compose", "version", "--short"], "code": 125,
             "stderr": "unknown flag: --short"}  # fmt: skip
PLUGIN = {"argv": ["docker", "compose", "version", "--short"], "stdout": "2.38.2\n"}
NO_BUILDX = {"argv": ["docker", "buildx", "version"], "code": 1, "stderr": "unknown command"}
PROGRAM = {"argv": ["docker-compose", "version", "--short"], "stdout": "1.27.4\n"}
ABSENT: dict[str, Any] = {"state": "absent", "value": {"host": SOCKET}, "detail": "No such file"}


@pytest.mark.parametrize(
    ("commands", "tree", "expected"),
    [
        ([PLUGIN, NO_BUILDX], "", ["2.38.2"]),
        ([NO_PLUGIN, NO_BUILDX, PROGRAM], "", ["1.27.4"]),
        ([PLUGIN, NO_BUILDX, PROGRAM], "", ["2.38.2", "1.27.4"]),
        # its script names the version: it is not run
        (
            [PLUGIN, NO_BUILDX, {"argv": ["docker-compose"]}],
            f"-- usr/bin/docker-compose --\n{EASY_INSTALL}",
            ["2.38.2", "1.29.2"],
        ),
        (
            [NO_PLUGIN, NO_BUILDX, {"argv": ["docker-compose"]}],
            "-- usr/bin/docker-compose -> ../share/compose/run --\n"
            f"-- usr/share/compose/run --\n{EASY_INSTALL}",
            ["1.29.2"],
        ),
        ([NO_PLUGIN, NO_BUILDX], "", []),
        ([], "", []),
    ],
)
def test_composes(
    tmp_path: Path, commands: list[dict[str, Any]], tree: str, expected: list[str]
) -> None:
    machine = written(tmp_path, tree, commands=commands, docker=ABSENT)
    found = engine.probe(machine, 1.0)
    assert [item.version for item in found.fact.composes] == expected
    assert found.fact.compose == (found.fact.composes[0] if expected else None)
    assert compose.find_compose(machine, 1.0) == found.fact.compose
    seen = [item for item in found.evidence if item.probe == "compose"]
    assert [item.state for item in seen].count("present") == len(expected)
    (why,) = [item for item in found.conclusions if item.about == "docker.compose"]
    assert len(why.instead) == max(0, len(expected) - 1)


def test_an_engine_that_nobody_chose_is_named(tmp_path: Path) -> None:
    machine = written(tmp_path, "-- run/user/1000/docker.sock --\n", docker=ABSENT)
    (why,) = [
        item for item in engine.probe(machine, 1.0).conclusions if item.about == "docker.state"
    ]
    assert (why.says, why.instead[0].source) == ("absent", "rootless Docker")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EASY_INSTALL, "1.29.2"),
        ("#!/usr/bin/python3\n__requires__ = 'docker-compose==1.25.0'\n", "1.25.0"),
        ("#!/bin/sh\nexec docker compose\n", None),
        ("\x7fELF'docker-compose==1.29.2'", None),
        ("", None),
    ],
)
def test_the_version_in_a_script(text: str, expected: str | None) -> None:
    assert compose.parse_script(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.38.2\n", "2.38.2"),
        ("v2.26.1-4\n", "2.26.1-4"),
        ("1.29.2", "1.29.2"),
        ("Docker Compose version v2.26.1", "2.26.1"),
        ("unknown flag: --short", None),
    ],
)
def test_compose_versions(text: str, expected: str | None) -> None:
    assert compose.parse_version(text) == expected


@given(text=st.text(max_size=200))
def test_no_text_trips_a_parser(text: str) -> None:
    compose.parse_version(text)
    compose.parse_script(f"#!{text}")


# --- the engine's own machine ---

CPU = Cpu(10, 1, 10, 1, 10)
MEMORY = Memory(32768, 32768)
DESKTOP = Engine("present", kind="desktop", cpus=4, memory_mib=8021)
OLD = Conclusion("cpu.usable", "10 of 10 CPUs", (Because("sysctl", "10 CPUs"),))


def test_a_smaller_machine_of_the_engines_limits() -> None:
    cpu, memory, conclusions = engine_limits.apply(CPU, MEMORY, DESKTOP, [OLD])
    assert (cpu.logical, cpu.usable, cpu.limited_by) == (10, 4, "engine")
    assert (memory.total_mib, memory.limit_mib, memory.limited_by) == (32768, 8021, "engine")
    assert [item.about for item in conclusions] == ["cpu.usable", "memory.limit_mib"]
    first = conclusions[0]
    assert "Docker Desktop's virtual machine has 4 CPUs" in first.because[0].says
    assert first.instead[0].source == OLD.says


@pytest.mark.parametrize(
    "engine_fact",
    [
        replace(DESKTOP, cpus=10, memory_mib=32768),
        replace(DESKTOP, cpus=64, memory_mib=1 << 20),
        replace(DESKTOP, cpus=None, memory_mib=None),
        replace(DESKTOP, state="denied"),
        Engine("absent"),
    ],
)
def test_any_other_engine_changes_nothing(engine_fact: Engine) -> None:
    assert engine_limits.apply(CPU, MEMORY, engine_fact, [OLD]) == (CPU, MEMORY, [OLD])


def test_what_is_not_known_stays_so() -> None:
    unknown = (Cpu(state="error"), Memory(state="denied"))
    assert engine_limits.apply(*unknown, DESKTOP, []) == (*unknown, [])


def test_compose_has_a_generation() -> None:
    assert [Compose(text, ()).major for text in ("1.29.2", "v2.1", "2.38")] == [1, 2, 2]
