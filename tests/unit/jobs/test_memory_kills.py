"""The kernel's count of processes that it ended for want of memory, as real machines lay it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from dshpc_setup.jobs import memory_kills

# Docker 20.10, version 1: the path on the host is told, and our own group is mounted
_V1_GROUP = "9:name=systemd:/docker/e6\n4:memory:/docker/e6{own}\n0::/docker/e6\n"
_V1_MOUNTS = (
    "245 244 0:90 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755\n"
    "249 245 0:32 /docker/e6 /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n"
    "250 245 0:33 /docker/e6 /sys/fs/cgroup/devices rw,nosuid - cgroup cgroup rw,devices\n"
)
_V2_MOUNTS = "30 29 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
_STEP = "/slurm_node/uid_0/job_4/step_batch/task_0"
_SCOPE = "/system.slice/node_slurmstepd.scope/job_4"


def tree(root: Path, group: str, mounts: str, **counts: int) -> str:
    """`counts`: path below /sys/fs/cgroup -> kills."""
    own = root / "proc/self"
    own.mkdir(parents=True)
    (own / "cgroup").write_text(group)
    (own / "mountinfo").write_text(mounts)
    for path, count in counts.items():
        file = root / "sys/fs/cgroup" / path.strip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        other = "oom_group_kill 9\n" if file.name == "memory.events" else "under_oom 9\n"
        file.write_text(f"{other}oom_kill {count}\n")
    return str(root)


@pytest.mark.parametrize(
    ("own", "expected"),
    [("", 1), (_STEP, 5), (f"{_STEP}/below", 5), ("/../other", 1)],
    ids=["default", "enforced", "the nearest above", "outside of what is seen"],
)
def test_version_1(own: str, expected: int, tmp_path: Path) -> None:
    counts = {"memory/memory.oom_control": 1, f"memory{_STEP}/memory.oom_control": 5}
    group = _V1_GROUP.format(own=own)
    assert memory_kills.count(tree(tmp_path, group, _V1_MOUNTS, **counts)) == expected


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("/", 2),
        ("/init", 2),  # no controller there
        (f"{_SCOPE}/step_batch/user/task_0", 4),
        ("/../../host", 2),
    ],
)
def test_version_2(group: str, expected: int, tmp_path: Path) -> None:
    counts = {"memory.events": 2, f"{_SCOPE}/step_batch/user/memory.events": 4}
    root = tree(tmp_path, f"0::{group}\n", _V2_MOUNTS, **counts)
    assert memory_kills.count(root) == expected


def test_a_container_of_a_machine_with_version_2_and_no_namespace(tmp_path: Path) -> None:
    mounts = _V2_MOUNTS.replace("0:26 /", "0:26 /docker/e6")
    root = tree(tmp_path, "0::/docker/e6/job\n", mounts, **{"job/memory.events": 3})
    assert memory_kills.count(root) == 3


def test_both_versions_at_once(tmp_path: Path) -> None:
    mounts = _V1_MOUNTS + _V2_MOUNTS.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    root = tree(
        tmp_path, _V1_GROUP.format(own=""), mounts, **{"memory/memory.oom_control": 7}
    )  # fmt: skip
    assert memory_kills.count(root) == 7


@pytest.mark.parametrize("text", ["", "oom 3\n", "oom_kill many\n", "oom_kill\n", "oom_kill -1\n"])
def test_what_does_not_say_it_counts_nothing(text: str, tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/\n", _V2_MOUNTS, **{"memory.events": 1})
    Path(root, "sys/fs/cgroup/memory.events").write_text(text)
    assert memory_kills.count(root) == 0


def test_a_machine_without_control_groups(tmp_path: Path) -> None:
    assert memory_kills.count(str(tmp_path)) == 0
    assert memory_kills.count(tree(tmp_path / "odd", "x\n:::\n4:memory:\n", "1 2\n - \n")) == 0
