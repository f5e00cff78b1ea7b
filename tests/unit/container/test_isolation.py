"""What is done to the tree of control groups before any daemon is started, and when that is refused.

A folder stands for the tree: the kernel's own answers are tested on real engines (integration, acceptance).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.container import device_rules, isolation
from dshpc_setup.container.isolation import Mount, parse_mounts
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Vendor
from dshpc_setup.plan import ClusterPlan, GresLine
from dshpc_setup.plan.model import Isolation
from dshpc_setup.render.configuration import render_slurm
from dshpc_setup.slurm.paths import Paths
from tests.unit.engine.fake import Answer, FakeMachine

V2 = "161 120 0:26 / /sys/fs/cgroup {} - cgroup2 cgroup rw,nsdelegate,memory_recursiveprot\n"
V1 = "198 197 0:79 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw,mode=755\n" + "".join(
    f"20{n} 198 0:{30 + n} /docker/7e /sys/fs/cgroup/{names} {{}} - cgroup cgroup rw,{names}\n"
    for n, names in enumerate(
        ("cpu,cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
    )
)
WRITTEN = ["cpu,cpuacct", "cpuset", "memory", "devices", "freezer", "pids"]
REMOUNT = ("mount", "-o", "remount,bind,rw")
MACHINE = {
    "/sys/devices/system/cpu/online": "0-7\n",
    "/sys/devices/system/cpu/smt/active": "1\n",
    "/sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
    "/sys/fs/cgroup/cpuset/cpuset.cpus": "0-7\n",
    "/sys/fs/cgroup/system.slice/memory.swap.max": "max\n",
    "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": "9223372036854771712\n",
}


@dataclass
class Inside(FakeMachine):
    """A container as its processes see it; device nodes by number."""

    nodes: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def device_number(self, path: str) -> tuple[int, int] | None:
        return self.nodes.get(path)


def inside(mountinfo: str, remount: Answer | None = None, **files: str) -> Inside:
    named = {path.replace("__", "/"): text for path, text in files.items()}
    return Inside(
        files={**MACHINE, "/proc/self/mountinfo": mountinfo, **named},
        commands={"mount": remount or Answer()},
    )


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stands for /sys/fs/cgroup, with a kernel that takes every rule."""
    folder = tmp_path / "sys/fs/cgroup"
    (folder / "devices").mkdir(parents=True)
    (folder / "cgroup.procs").write_text("1\n27\n")
    monkeypatch.setattr(device_rules, "try_rule_v1", str)
    monkeypatch.setattr(device_rules, "try_rule_v2", str)
    return folder


def paths(tree: Path) -> Paths:
    return Paths(str(tree.parents[2]))


# --- the mounts --------------------------------------------------------------------------------


def test_version_2_is_one_mount() -> None:
    assert parse_mounts(V2.format("ro,nosuid")) == (Mount("/sys/fs/cgroup", 2, False),)
    assert parse_mounts(V2.format("rw,nosuid")) == (Mount("/sys/fs/cgroup", 2, True),)


def test_version_1_is_a_mount_for_each_set_of_controllers() -> None:
    found = parse_mounts(V1.replace("{}", "ro,nosuid"))
    assert [mount.path.rpartition("/")[2] for mount in found][:2] == ["cpu,cpuacct", "cpuset"]
    assert found[0].controllers == ("rw", "cpu", "cpuacct")
    assert {mount.version for mount in found} == {1}
    assert not any(mount.writable for mount in found)


def test_a_later_mount_lies_over_an_earlier_one() -> None:
    assert parse_mounts(V2.format("ro") + V2.format("rw")) == (Mount("/sys/fs/cgroup", 2, True),)


@pytest.mark.parametrize(
    "line",
    [
        "36 35 0:26 / /mnt/cgroup rw - cgroup2 cgroup rw",
        "36 35 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw",  # hybrid: no controller there
        "36 35 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        "36 35 0:26 / /sys/fs/cgroup rw",
        "",
    ],
)
def test_other_mounts_are_not_taken_for_it(line: str) -> None:
    assert parse_mounts(line) == ()


@given(st.text(alphabet=st.sampled_from(" -/\ncgroup2,rwsysf:0\t"), max_size=300))
def test_any_text_is_read(text: str) -> None:
    for mount in parse_mounts(text):
        assert mount.path == isolation.TREE or os.path.dirname(mount.path) == isolation.TREE


# --- the tree ----------------------------------------------------------------------------------


def test_the_default_tier_looks_at_nothing(tree: Path) -> None:
    machine = FakeMachine()
    assert isolation.prepare(machine, paths(tree), "default", "node") == ()
    assert machine.ran == []
    assert sorted(path.name for path in tree.iterdir()) == ["cgroup.procs", "devices"]


def test_version_1_makes_what_slurm_writes_to_writable(tree: Path) -> None:
    machine = inside(V1.replace("{}", "ro,nosuid"))
    isolation.prepare(machine, paths(tree), "enforced", "n1")
    assert machine.ran == [(*REMOUNT, f"/sys/fs/cgroup/{names}") for names in WRITTEN]
    assert not (tree / "init").exists()  # there, processes may stay where they are


def test_what_is_writable_is_left_alone(tree: Path) -> None:
    machine = inside(V1.replace("{}", "rw,nosuid"))
    isolation.prepare(machine, paths(tree), "enforced", "n1")
    assert machine.ran == []


def test_version_2_moves_the_processes_and_makes_the_group_of_the_steps(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = inside(V2.format("ro"))
    machine.env = {"DSHPC_PREFIX": "n1"}
    moved: list[tuple[str, str]] = []
    real = isolation._write

    def write(path: str, text: str) -> None:
        if path.endswith("cgroup.procs"):
            moved.append((path, text))
            if text == "27":
                raise ProcessLookupError  # it ended meanwhile
        else:
            real(path, text)

    monkeypatch.setattr(isolation, "_write", write)
    isolation.prepare(machine, paths(tree), "enforced", "n1")
    assert machine.ran == [(*REMOUNT, "/sys/fs/cgroup")]
    assert moved == [(f"{tree}/init/cgroup.procs", "1"), (f"{tree}/init/cgroup.procs", "27")]
    scope = tree / "system.slice/n1_slurmstepd.scope"
    for group in (tree, scope.parent, scope):
        assert (group / "cgroup.subtree_control").read_text() == "+pids"  # the last of them


def test_a_kernel_that_counts_no_processes_for_groups_keeps_jobs_apart_all_the_same(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = isolation._write

    def write(path: str, text: str) -> None:
        if text == "+pids":
            raise OSError(22, "Invalid argument")
        if not path.endswith("cgroup.procs"):
            real(path, text)

    monkeypatch.setattr(isolation, "_write", write)
    isolation.prepare(inside(V2.format("rw")), paths(tree), "enforced", "n1")
    assert (tree / "cgroup.subtree_control").read_text() == "+memory"


def test_a_process_that_comes_meanwhile_is_moved_as_well(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []

    def write(path: str, text: str) -> None:
        tries.append(text)
        if path == f"{tree}/cgroup.subtree_control" and tries.count("1") < 3:
            raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(isolation, "_write", write)
    isolation.prepare(inside(V2.format("rw")), paths(tree), "enforced", "n1")
    assert tries.count("1") == 3


def test_a_root_that_stays_busy_is_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(path: str, text: str) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(isolation, "_write", write)
    monkeypatch.setattr(isolation, "_MOVE_S", 0.03)
    with pytest.raises(DshpcError) as caught:
        isolation.prepare(inside(V2.format("rw")), paths(tree), "enforced", "n1")
    assert "Device or resource busy" in caught.value.details


def test_the_group_of_another_node_name(tree: Path) -> None:
    isolation.make_scope(paths(tree), "gpu-box")
    assert not (tree / "system.slice").exists()  # the tier is not in force, or it is version 1
    (tree / "init").mkdir()
    isolation.make_scope(paths(tree), "gpu-box")
    isolation.make_scope(paths(tree), "gpu-box")
    assert (tree / "system.slice/gpu-box_slurmstepd.scope").is_dir()


def test_a_group_that_cannot_be_made_is_told(tree: Path) -> None:
    (tree / "init").mkdir()
    with pytest.raises(DshpcError) as caught:
        isolation.make_scope(paths(tree), "n" * 300)
    assert "isolation = enforced cannot be kept" in caught.value.brief
    assert "File name too long" in caught.value.details
    assert "shorter name" in caught.value.resolution[0]
    (tree / "system.slice").rmdir()
    (tree / "system.slice").write_text("")
    with pytest.raises(DshpcError) as caught:
        isolation.make_scope(paths(tree), "n")
    assert not any("shorter name" in step for step in caught.value.resolution)


def test_the_node_that_is_given_is_not_looked_up(tree: Path) -> None:
    machine = inside(V2.format("rw"))
    machine.env = {"DSHPC_PREFIX": "n1"}
    isolation.prepare(machine, paths(tree), "enforced", "n2")
    assert [path.name for path in (tree / "system.slice").glob("*.scope")] == [
        "n2_slurmstepd.scope"
    ]


# --- refusals ----------------------------------------------------------------------------------


def refused(machine: Inside, tree: Path) -> DshpcError:
    with pytest.raises(DshpcError) as caught:
        isolation.prepare(machine, paths(tree), "enforced", "n1")
    assert "isolation = enforced cannot be kept in this container" in caught.value.brief
    assert "dshpc config set isolation default" in caught.value.resolution[-1]
    return caught.value


DENIED = Answer(code=32, stderr="mount: /sys/fs/cgroup: permission denied.")


@pytest.mark.parametrize(
    ("profile", "options"),
    [
        (
            "docker-default (enforce)\n",
            "docker run --cap-add SYS_ADMIN --security-opt apparmor=unconfined ...",
        ),
        ("unconfined\n", "docker run --cap-add SYS_ADMIN ..."),
        ("docker-default (complain)\n", "docker run --cap-add SYS_ADMIN ..."),
        (
            "system_u:system_r:container_t:s0:c1,c2\0",
            "docker run --cap-add SYS_ADMIN --security-opt label=disable ...",
        ),
    ],
)
def test_a_container_without_the_rights(tree: Path, profile: str, options: str) -> None:
    machine = inside(V2.format("ro"), DENIED, __proc__self__attr__current=profile)
    error = refused(machine, tree)
    assert "mount: /sys/fs/cgroup: permission denied." in error.details
    assert options in error.resolution[0]
    assert not (tree / "init").exists()


@pytest.mark.parametrize(("mountinfo", "rule"), [(V1, "try_rule_v1"), (V2, "try_rule_v2")])
def test_a_kernel_that_takes_no_device_rule(
    tree: Path, monkeypatch: pytest.MonkeyPatch, mountinfo: str, rule: str
) -> None:
    def no(folder: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(device_rules, rule, no)
    error = refused(inside(mountinfo.replace("{}", "rw")), tree)
    assert "Operation not permitted" in error.details


def test_a_controller_that_is_not_there(tree: Path) -> None:
    lines = [line for line in V1.replace("{}", "rw").splitlines(True) if "devices" not in line]
    error = refused(inside("".join(lines)), tree)
    assert "no control group for: devices " in error.details


def test_swap_that_cannot_be_limited(tree: Path) -> None:
    machine = inside(V1.replace("{}", "rw"))
    del machine.files["/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"]
    assert "swapaccount=1" in refused(machine, tree).resolution[0]


@pytest.mark.parametrize("mountinfo", [V1, V2])
@pytest.mark.parametrize(
    ("allowed", "threads", "fits"),
    [
        ("0-7", "1", True),
        ("0-3", "0", True),
        ("0-3", "1", False),  # Slurm's second CPU may be the kernel's CPU 4
        ("4-7", "0", False),
        ("1", "0", False),
    ],
)
def test_a_container_with_some_of_the_cpus(
    tree: Path, mountinfo: str, allowed: str, threads: str, fits: bool
) -> None:
    machine = inside(mountinfo.replace("{}", "rw"))
    machine.files["/sys/devices/system/cpu/smt/active"] = threads
    for file in ("cpuset.cpus.effective", "cpuset/cpuset.cpus"):
        machine.files[f"/sys/fs/cgroup/{file}"] = allowed
    if fits:
        assert isolation.prepare(machine, paths(tree), "enforced", "n1") == ()
    else:
        assert "limited to some CPUs" in refused(machine, tree).details


# --- GPUs that are one device ------------------------------------------------------------------


def plan(*files: tuple[str, ...], tier: Isolation = "enforced") -> ClusterPlan:
    vendor: Vendor = "nvidia"
    lines = tuple(GresLine("h100", vendor, each, number) for number, each in enumerate(files))
    return ClusterPlan("lab", "lab", "debug", 2, 2000, 1000, gres=lines, isolation=tier)


NODES = {
    "/dev/nvidia0": (195, 0),
    "/dev/nvidia1": (195, 1),
    "/dev/nvidia-caps/nvidia-cap12": (235, 12),
    "/dev/nvidia-caps/nvidia-cap21": (235, 21),
    "/run/dshpc/gpus/dxg0": (10, 125),
    "/run/dshpc/gpus/dxg1": (10, 125),
    "/dev/nvidia7": (1, 3),
}


@pytest.mark.parametrize(
    "files",
    [
        (("/dev/nvidia0",), ("/dev/nvidia1",)),
        (
            ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"),
            ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21"),
        ),
        (),
    ],
)
def test_gpus_with_numbers_of_their_own(files: tuple[tuple[str, ...], ...]) -> None:
    assert isolation.shared_node_error(Inside(nodes=NODES), plan(*files)) is None


def test_two_names_of_one_device() -> None:
    both = (("/run/dshpc/gpus/dxg0",), ("/run/dshpc/gpus/dxg1",))
    error = isolation.shared_node_error(Inside(nodes=NODES), plan(*both))
    assert error is not None
    assert "/run/dshpc/gpus/dxg0 and /run/dshpc/gpus/dxg1 are one device" in error.details
    assert isolation.shared_node_error(Inside(nodes=NODES), plan(*both[:1])) is None
    assert isolation.shared_node_error(Inside(nodes=NODES), plan(*both, tier="default")) is None


def test_a_name_of_dev_null() -> None:
    error = isolation.shared_node_error(Inside(nodes=NODES), plan(("/dev/nvidia7",)))
    assert error is not None
    assert "/dev/nvidia7: a name of /dev/null" in error.details


# --- what Slurm is told ------------------------------------------------------------------------


def texts(tier: Isolation) -> dict[str, str]:
    return render_slurm(plan(("/dev/nvidia0",), tier=tier))


def test_the_rendered_files_keep_what_was_asked_for() -> None:
    assert isolation.tier_error(texts("enforced"), "enforced") is None
    assert isolation.tier_error(texts("default"), "default") is None


def test_files_of_the_default_tier_are_not_enough() -> None:
    error = isolation.tier_error(texts("default"), "enforced")
    assert error is not None
    assert error.details == (
        "slurm.conf has ProctrackType=proctrack/linuxproc, "
        "which has to be ProctrackType=proctrack/cgroup."
    )


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("cgroup.conf", "ConstrainDevices=yes", "ConstrainDevices=no"),
        ("cgroup.conf", "ConstrainDevices=yes", "#ConstrainDevices=yes"),
        ("cgroup.conf", "ConstrainRAMSpace=yes", "constrainramspace=no"),
        ("slurm.conf", "TaskPlugin=task/cgroup", "TaskPlugin=task/affinity"),
    ],
)
def test_own_files_that_keep_less(file: str, old: str, new: str) -> None:
    found = texts("enforced")
    assert old in found[file]
    found[file] = found[file].replace(old, new)
    error = isolation.tier_error(found, "enforced")
    assert error is not None
    assert file in error.details
    assert old in error.resolution[0]


def test_own_files_may_say_it_in_another_way() -> None:
    found = texts("enforced")
    found["slurm.conf"] = found["slurm.conf"].replace(
        "TaskPlugin=task/cgroup", "taskplugin=task/affinity,task/cgroup  # mine"
    )
    assert isolation.tier_error(found, "enforced") is None


# --- the trial of a device rule ----------------------------------------------------------------


def test_the_trial_of_version_1_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not empty"):  # a real group's files do not hinder rmdir
        device_rules.try_rule_v1(str(tmp_path))
    assert (tmp_path / "dshpc-trial/devices.deny").read_text() == "c 1:3 rwm"


def test_the_trial_of_version_2_loads_and_attaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def bpf(command: int, request: object) -> int:
        asked.append(command)
        return os.open(os.devnull, os.O_RDONLY) if command == 5 else 0

    monkeypatch.setattr(device_rules, "_bpf", bpf)
    device_rules.try_rule_v2(str(tmp_path))
    assert asked == [5, 8]
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_is_refused_leaves_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bpf(command: int, request: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(device_rules, "_bpf", bpf)
    with pytest.raises(PermissionError):
        device_rules.try_rule_v2(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_machine_whose_system_call_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(OSError, match="pdp11"):
        device_rules._load()
