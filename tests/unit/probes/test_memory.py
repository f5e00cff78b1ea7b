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


@given(total=st.integers(2, 1 << 40), limit=st.none() | st.integers(1, 1 << 70))
def test_a_limit_never_adds(total: int, limit: int | None) -> None:
    fact = memory.limit(total, limit)
    assert fact.limit_mib is not None
    assert 1 <= fact.limit_mib <= total
    assert (fact.limited_by is None) == (fact.limit_mib == total)
