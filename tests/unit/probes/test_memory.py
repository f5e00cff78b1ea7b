"""Memory as Slurm counts it, under every limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Memory
from dshpc_setup.probes import memory
from tests.unit.probes.written import written

BASE = "-- proc/meminfo --\nMemTotal:       16777216 kB\n"  # 16 GiB
GROUP = "-- proc/self/cgroup --\n"
V2 = "-- sys/fs/cgroup/{}memory.max --\n{}\n"


@pytest.mark.parametrize(
    ("tree", "limit", "limited_by"),
    [
        (BASE, 16384, None),
        (BASE + GROUP + "0::/\n" + V2.format("", "4294967296"), 4096, "cgroup"),
        (BASE + GROUP + "0::/\n" + V2.format("", "max"), 16384, None),
        # more than there is
        (BASE + GROUP + "0::/\n" + V2.format("", str(1 << 40)), 16384, None),
        # the group above is narrower than ours
        (
            BASE + GROUP + "0::/a/b\n" + V2.format("a/b/", str(8 << 30)) + V2.format("a/", str(2 << 30)),
            2048,
            "cgroup",
        ),
        # memory.high slows down, and limits nothing
        (BASE + GROUP + "0::/\n-- sys/fs/cgroup/memory.high --\n1048576\n", 16384, None),
        # version 1: the path is the host's, and the tree is our own group
        (
            BASE + GROUP + "5:memory:/docker/1\n-- sys/fs/cgroup/memory/memory.limit_in_bytes --\n"
            "2147483648\n",
            2048,
            "cgroup",
        ),
        # version 1: a group above what is mounted for us
        (
            BASE + GROUP + "5:memory:/x\n-- sys/fs/cgroup/memory/memory.limit_in_bytes --\n"
            "9223372036854771712\n-- sys/fs/cgroup/memory/memory.stat --\ncache 0\n"
            "hierarchical_memory_limit 1073741824\n",
            1024,
            "cgroup",
        ),
    ],
)  # fmt: skip
def test_limits(tmp_path: Path, tree: str, limit: int, limited_by: str | None) -> None:
    found = memory.probe(written(tmp_path, tree), 1.0)
    assert found.fact == Memory(16384, limit, limited_by)
    (why,) = found.conclusions
    assert (why.about, bool(why.because)) == ("memory.limit_mib", True)


def _nodes(**nodes: tuple[int, str]) -> str:
    """sysfs of NUMA nodes: name -> (MiB, CPUs)."""
    listed = ",".join(name[4:] for name in nodes)
    text = f"-- sys/devices/system/node/has_memory --\n{listed}\n"
    for name, (mib, cpus) in nodes.items():
        folder, number = f"sys/devices/system/node/{name}", name[4:]
        text += f"-- {folder}/meminfo --\nNode {number} MemTotal:  {mib << 10} kB\n"
        text += f"-- {folder}/cpulist --\n{cpus}\n"
    return text


_TWO = _nodes(node0=(6144, "0-3"), node1=(10240, "4-7"))
_WITH_GPU = _nodes(node0=(6144, "0-71"), node1=(10240, ""))
_DRIVER = "-- proc/driver/nvidia/gpus/0009:01:00.0/information --\nModel: NVIDIA GH200 480GB\n"
_MEMS = "-- proc/self/status --\nMems_allowed_list:\t{}\n"


@pytest.mark.parametrize(
    ("tree", "machine", "memory_fact"),
    [
        # Grace Hopper and POWER9: the node without CPUs is the GPU's own memory
        (_WITH_GPU + _DRIVER, "aarch64", Memory(6144, 6144)),
        (_WITH_GPU + _DRIVER + _MEMS.format("0-1"), "ppc64le", Memory(6144, 6144)),
        # the near misses: no driver, a CXL expander beside a card of a PC, all nodes with CPUs
        (_WITH_GPU, "aarch64", Memory(16384, 16384)),
        (_WITH_GPU + _DRIVER, "x86_64", Memory(16384, 16384)),
        (_TWO + _DRIVER, "aarch64", Memory(16384, 16384)),
        # a node that cannot be read: nothing is taken away
        (_WITH_GPU.replace("node1/cpulist", "node1/other") + _DRIVER, "aarch64", Memory(16384, 16384)),
        # cpuset.mems
        (_TWO + _MEMS.format("1"), "x86_64", Memory(16384, 10240, "cpuset")),
        (_TWO + _MEMS.format("0-255"), "x86_64", Memory(16384, 16384)),
        (_TWO + _MEMS.format("7"), "x86_64", Memory(16384, 16384)),
        (
            _TWO + _MEMS.format("1") + GROUP + "0::/\n" + V2.format("", str(2 << 30)),
            "x86_64",
            Memory(16384, 2048, "cgroup"),
        ),
    ],
)  # fmt: skip
def test_numa_nodes(tmp_path: Path, tree: str, machine: str, memory_fact: Memory) -> None:
    found = memory.probe(written(tmp_path, BASE + tree, machine=machine), 1.0)
    assert found.fact == memory_fact
    (why,) = found.conclusions
    assert (why.about, bool(why.because)) == ("memory.limit_mib", True)


def test_what_lxcfs_shows_holds_no_memory_of_gpus(tmp_path: Path) -> None:
    mount = "601 585 0:59 /proc/meminfo /proc/meminfo rw,nosuid - fuse.lxcfs lxcfs rw,user_id=0\n"
    tree = f"{BASE}{_WITH_GPU}{_DRIVER}-- proc/self/mountinfo --\n{mount}"
    assert memory.probe(written(tmp_path, tree, machine="aarch64"), 1.0).fact == Memory(
        16384, 16384
    )


@pytest.mark.parametrize(
    ("tree", "state", "told"),
    [
        ("", "absent", "it is not there"),
        ("-- proc/meminfo denied --\n", "denied", ""),
        ("-- proc/meminfo --\nMemTotal: lots\n", "error", "lots"),
        ("-- proc/meminfo --\nMemTotal: 0 kB\n", "error", ""),
    ],
)
def test_what_is_not_known_is_no_number(tmp_path: Path, tree: str, state: str, told: str) -> None:
    found = memory.probe(written(tmp_path, tree), 1.0)
    assert found.fact == Memory(state=state)  # type: ignore[arg-type]
    assert (found.fact.limit_mib, found.fact.usable_mib) == (None, None)
    assert told in (found.evidence[-1].detail or "")


def test_lxcfs_is_told(tmp_path: Path) -> None:
    mount = "601 585 0:59 /proc/meminfo /proc/meminfo rw,nosuid - fuse.lxcfs lxcfs rw,user_id=0\n"
    found = memory.probe(written(tmp_path, f"{BASE}-- proc/self/mountinfo --\n{mount}"), 1.0)
    assert "lxcfs" in found.conclusions[0].because[0].says
    assert not memory.is_lxcfs(mount.replace("fuse.lxcfs", "proc"))


@given(text=st.text(max_size=200) | st.integers().map(lambda size: f"MemTotal: {size} kB"))
def test_no_text_trips_a_parser(text: str) -> None:
    total = memory.parse_total(text)
    assert total is None or total >= 0
    memory.is_lxcfs(text)


@given(
    total=st.integers(2, 1 << 40),
    limit=st.none() | st.integers(1, 1 << 70),
    allowed=st.none() | st.integers(0, 1 << 41),
)
def test_a_limit_never_adds(total: int, limit: int | None, allowed: int | None) -> None:
    fact = memory.limit(total, limit, allowed)
    assert fact.limit_mib is not None
    assert 1 <= fact.limit_mib <= total
    assert (fact.limited_by is None) == (fact.limit_mib == total)
