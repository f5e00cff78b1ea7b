"""CPUs as Slurm counts them, under every limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Cpu
from dshpc_setup.machine.recorded import RecordedMachine
from dshpc_setup.probes import cgroup, cpu, ranges
from dshpc_setup.probes.trace import Trace
from tests.unit.probes.written import written

SYS = "sys/devices/system/cpu"


def topology(cores: list[str], packages: list[str], online: str) -> str:
    """The files of every CPU; `cores` and `packages` are lists of CPUs that belong together."""
    lines = [f"-- {SYS}/online --", online]
    for name, groups in (("core_cpus_list", cores), ("package_cpus_list", packages)):
        for group in groups:
            for number in sorted(ranges.parse(group)):
                lines += [f"-- {SYS}/cpu{number}/topology/{name} --", group]
    return "\n".join([*lines, ""])


def numbered(*ids: tuple[int, int]) -> str:
    """The same of CPUs that tell their socket's and core's number, and no siblings."""
    lines = [f"-- {SYS}/online --", f"0-{len(ids) - 1}"]
    for number, (package, core) in enumerate(ids):
        folder = f"{SYS}/cpu{number}/topology"
        lines += [f"-- {folder}/physical_package_id --", str(package)]
        lines += [f"-- {folder}/core_id --", str(core)]
    return "\n".join([*lines, ""])


def shape_of(machine: RecordedMachine) -> tuple[int | None, int | None, int | None]:
    fact = cpu.probe(machine, 1.0).fact
    return fact.sockets, fact.cores_per_socket, fact.threads_per_core


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (topology(["0,2", "1,3"], ["0-3"], "0-3"), (1, 2, 2)),
        (topology(["0", "1", "2", "3"], ["0-1", "2-3"], "0-3"), (2, 2, 1)),
        # two threads of four cores, and four cores of one
        (topology(["0-1", "2-3", "4", "5"], ["0-5"], "0-5"), (1, None, None)),
        # CPU 1, the first core's second thread, and CPU 5 of another core are offline
        (
            topology(["0", "2-3", "4", "6-7"], ["0,2-4,6-7"], "0,2-4,6-7")
            + f"-- {SYS}/present --\n0-7\n",
            (1, None, None),
        ),
        # a whole core is offline: what is left is even
        (topology(["0-1", "4-5"], ["0-1,4-5"], "0-1,4-5"), (1, 2, 2)),
        # the firmware of the machine does not say which socket a CPU is in
        (
            topology(["0", "1"], ["0", "1"], "0-1")
            + f"-- {SYS}/cpu0/topology/physical_package_id --\n-1\n",
            (None, None, None),
        ),
        (numbered((0, 0), (0, 1), (0, 0), (0, 1)), (1, 2, 2)),
        (numbered((0, 0), (0, 1), (1, 0), (1, 1)), (2, 2, 1)),
        (numbered((0, 0), (0, 0), (0, 1)), (1, None, None)),
        (numbered((-1, 0), (-1, 1)), (None, None, None)),
        (f"-- {SYS}/online --\n0-7\n", (None, None, None)),
    ],
)
def test_shapes(tmp_path: Path, tree: str, expected: tuple[int | None, ...]) -> None:
    assert shape_of(written(tmp_path, tree)) == expected


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (topology(["0", "1", "2", "3"], ["0-3"], "0-3"), ("0-3",)),
        # as Intel's servers count: the second threads after all first ones
        (
            topology(["0,4", "1,5", "2,6", "3,7"], ["0-1,4-5", "2-3,6-7"], "0-7"),
            ("0-1,4-5", "2-3,6-7"),
        ),
        # sockets in turns, the one of CPU 0 first
        (topology(["0", "1", "2", "3"], ["1,3", "0,2"], "0-3"), ("0,2", "1,3")),
        # the sockets are known where their cores are not alike
        (topology(["0-1", "2-3", "4", "5"], ["0-5"], "0-5"), ("0-5",)),
        (numbered((0, 0), (1, 0), (0, 1), (1, 1)), ("0,2", "1,3")),
        (numbered((1, 0), (1, 1), (0, 0), (0, 1)), ("0-1", "2-3")),
        (numbered((-1, 0), (-1, 1)), ()),
        (f"-- {SYS}/online --\n0-7\n", ()),
    ],
)
def test_the_cpus_of_each_socket(tmp_path: Path, tree: str, expected: tuple[str, ...]) -> None:
    assert cpu.probe(written(tmp_path, tree), 1.0).fact.socket_cpus == expected


@given(st.frozensets(st.integers(0, 300)))
def test_a_list_of_numbers_is_read_as_it_was_written(numbers: frozenset[int]) -> None:
    text = ranges.text(numbers)
    assert ranges.parse(text) == numbers
    assert text.count(",") <= len(numbers)


def candidates(allowed: int, quota: int | None) -> list[cpu.Candidate]:
    found = [cpu.Candidate(8, None, "sysfs", ""), cpu.Candidate(allowed, "affinity", "status", "")]
    return found + ([cpu.Candidate(quota, "cgroup quota", "cpu.max", "")] if quota else [])


@pytest.mark.parametrize(
    ("allowed", "quota", "expected"),
    [
        (8, None, (8, None)),
        (0, None, (8, None)),
        (3, None, (3, "affinity")),
        (8, 2, (2, "cgroup quota")),
        (2, 4, (2, "affinity")),
        (8, 64, (8, None)),
    ],
)
def test_the_least_counts(
    allowed: int, quota: int | None, expected: tuple[int, str | None]
) -> None:
    found = cpu.least(candidates(allowed, quota))
    assert (found.count, found.name) == expected


BASE = f"-- {SYS}/online --\n0-7\n"
STATUS = "-- proc/self/status --\nName:\tx\nCpus_allowed_list:\t{}\n"


@pytest.mark.parametrize(
    ("tree", "usable", "limited_by"),
    [
        (BASE + STATUS.format("0-7"), 8, None),
        (BASE + STATUS.format("2-3"), 2, "affinity"),
        (
            BASE
            + STATUS.format("2-3")
            + "-- proc/self/cgroup --\n0::/a\n-- sys/fs/cgroup/a/cpuset.cpus.effective --\n2-3\n",
            2,
            "cpuset",
        ),
        (
            BASE
            + STATUS.format("2")
            + "-- proc/self/cgroup --\n0::/a\n-- sys/fs/cgroup/a/cpuset.cpus.effective --\n2-3\n",
            1,
            "affinity",
        ),
        # half a CPU carries one job at a time
        (BASE + "-- proc/self/cgroup --\n0::/\n-- sys/fs/cgroup/cpu.max --\n50000 100000\n", 1,
         "cgroup quota"),
        # no list of our groups: those that are mounted are ours
        (BASE + "-- sys/fs/cgroup/cpu.max --\n150000 100000\n", 1, "cgroup quota"),
        (BASE + "-- sys/fs/cgroup/cpuset/cpuset.cpus --\n0-2\n", 3, "cpuset"),
        # the quota two levels above is the least
        (
            BASE
            + "-- proc/self/cgroup --\n0::/a/b/c\n"
            + "-- sys/fs/cgroup/a/cpu.max --\n300000 100000\n"
            + "-- sys/fs/cgroup/a/b/cpu.max --\nmax 100000\n"
            + "-- sys/fs/cgroup/a/b/c/cpu.max --\n600000 100000\n",
            3,
            "cgroup quota",
        ),
        # version 1, mounted under the name of both controllers alone
        (
            BASE
            + "-- proc/self/cgroup --\n3:cpu,cpuacct:/x\n"
            + "-- sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us --\n250000\n"
            + "-- sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us --\n100000\n",
            2,
            "cgroup quota",
        ),
    ],
)  # fmt: skip
def test_limits(tmp_path: Path, tree: str, usable: int, limited_by: str | None) -> None:
    found = cpu.probe(written(tmp_path, tree), 1.0)
    assert (found.fact.usable, found.fact.limited_by) == (usable, limited_by)
    (why,) = found.conclusions
    assert why.about == "cpu.usable"
    assert why.because


@pytest.mark.parametrize(
    ("tree", "state", "told"),
    [
        ("", "absent", "there is neither"),
        (f"-- {SYS}/online denied --\n", "denied", "may not be read"),
        (f"-- {SYS}/online --\nno number\n", "error", "no number"),
    ],
)
def test_what_is_not_known_is_no_number(tmp_path: Path, tree: str, state: str, told: str) -> None:
    found = cpu.probe(written(tmp_path, tree), 1.0)
    assert found.fact == Cpu(state=state)  # type: ignore[arg-type]
    assert (found.fact.logical, found.fact.usable) == (None, None)
    assert told in (found.evidence[-1].detail or "")


def test_a_limit_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    tree = BASE + "-- proc/self/cgroup --\n0::/a\n-- sys/fs/cgroup/a/cpu.max denied --\n"
    found = cpu.probe(written(tmp_path, tree), 1.0)
    assert found.fact.usable == 8
    seen = [(item.state, item.source) for item in found.evidence]
    assert ("denied", "/sys/fs/cgroup/a/cpu.max") in seen


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10\n10\n1\n", (10, (1, 10, 1))),
        ("12\n6\n1\n", (12, (1, 6, 2))),
        ("10\n0\n1\n", (10, (None, None, None))),
        ("10\n", (10, (None, None, None))),
        ("0\n0\n0\n", None),
        ("sysctl: unknown oid", None),
    ],
)
def test_sysctl(text: str, expected: object) -> None:
    assert cpu.parse_sysctl(text) == expected


def test_a_group_outside_our_view_counts_by_the_root_alone() -> None:
    assert cgroup._upwards("/sys/fs/cgroup", "/../..") == ["/sys/fs/cgroup"]
    assert cgroup._upwards("/r", "/a/b") == ["/r/a/b", "/r/a", "/r"]


LINES = st.lists(
    st.text(max_size=40)
    | st.sampled_from(
        ["Cpus_allowed_list:\t0-3", "processor\t: 7", "0::/user.slice", "4:memory:/docker/1",
         "3:cpu,cpuacct:/", "max 100000", "hierarchical_memory_limit 1024", "9" * 400, "-1", "0-",
         "0-99999999999"]
    ),
    max_size=8,
).map("\n".join)  # fmt: skip


@given(text=LINES)
def test_no_text_trips_a_parser(text: str) -> None:
    cpu.parse_allowed(text)
    cpu.parse_cpuinfo(text)
    cpu.parse_sysctl(text)
    cgroup.parse_groups(text)
    cgroup.parse_cpu_max(text)
    cgroup.parse_size(text)
    cgroup.parse_hierarchical(text)
    assert len(ranges.parse(text)) <= 1 << 16


def test_limits_of_a_machine_without_groups(tmp_path: Path) -> None:
    assert cgroup.probe(Trace(written(tmp_path))) == cgroup.Limits()


def test_offline_where_no_list_says_so(tmp_path: Path) -> None:
    """A kernel whose cpuinfo lists all, and no cpu/online: each CPU says it itself."""
    cpuinfo = "".join(f"processor\t: {number}\n\n" for number in range(4))
    offline = "".join(f"-- sys/devices/system/cpu/cpu{n}/online --\n{n // 3 ^ 1}\n" for n in (1, 3))
    tree = f"-- proc/cpuinfo --\n{cpuinfo}{offline}"
    assert cpu.probe(written(tmp_path, tree), 1.0).fact.logical == 3
