"""The ground of the isolation tier `enforced`: control groups that Slurm may write, in this container.

The tree of the container's own groups is made writable and every right that Slurm will need is tried, so
that a cluster is enforced in all or does not start. Seen with Docker 20.10 and version 1, with Docker 26.1
and version 2.

Version 2 allows processes in the leaves only, so those of the container move to a group of their own; what
`docker exec` starts later follows its first process there (runc since 1.0). And slurmd wants the group of
its job steps made by systemd. It is made here instead: where slurmd makes it (IgnoreSystemd=yes), it moves
the processes around it one group deeper at each start, and a later slurmd looks for its steps elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

from dshpc_setup.container import device_rules
from dshpc_setup.container.complaints import shortened
from dshpc_setup.errors import DshpcError
from dshpc_setup.machine import Machine
from dshpc_setup.plan import ClusterPlan
from dshpc_setup.probes import ranges
from dshpc_setup.render.isolation import BACK_TO_DEFAULT
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import Paths

TREE = "/sys/fs/cgroup"
_V1 = ("cpuacct", "cpuset", "devices", "freezer", "memory")  # what Slurm's cgroup/v1 writes to
_V2 = ("cpu", "cpuset", "memory")  # what Slurm's cgroup/v2 enables
_PIDS = "pids"  # what container/task_place.c writes to, where the kernel has it
_WANTED = (
    ("slurm.conf", "ProctrackType", "proctrack/cgroup"),
    ("slurm.conf", "TaskPlugin", "task/cgroup"),
    ("cgroup.conf", "ConstrainDevices", "yes"),
    ("cgroup.conf", "ConstrainCores", "yes"),
    ("cgroup.conf", "ConstrainRAMSpace", "yes"),
)  # the tier, as Slurm is told it
_OWN = "init"  # the group of all processes that belong to no job
_SLICE = "system.slice"  # the name is Slurm's
_MOUNT_S = 5.0
_MOVE_S = 5.0
_MEMORY_DEVICES = 1  # major number of /dev/null, /dev/zero, /dev/urandom, ...


@dataclass(frozen=True)
class Mount:
    """A mounted hierarchy of control groups; `controllers` are those of version 1."""

    path: str
    version: int
    writable: bool
    controllers: tuple[str, ...] = ()


def prepare(machine: Machine, paths: Paths, isolation: str, node: str) -> tuple[str, ...]:
    """Make this container fit for the tier; sentences for people about what was done.

    Once in a start, before any daemon; nothing for `default`. `node` is the one of the settings.
    Raises DshpcError where the tier cannot be had: then no daemon may be started.
    """
    if isolation == "default":
        return ()
    mounts = parse_mounts(machine.read("/proc/self/mountinfo").text or "")
    needed = _needed(mounts)
    for mount in needed:
        if not mount.writable:
            _make_writable(machine, mount)
    version = needed[0].version
    try:
        if version == 2:
            _empty_root(paths)
            _make_scope(paths, node)
        _try_rights(paths, version)
    except OSError as error:
        raise _cannot(machine, str(error)) from None
    lacking = _swap_error(machine, version) or _cores_error(machine, version)
    if lacking is not None:
        raise lacking
    return ()


def parse_mounts(mountinfo: str) -> tuple[Mount, ...]:
    """The hierarchies mounted at or right below /sys/fs/cgroup, as /proc/self/mountinfo lists them."""
    found = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(), after.split()
        if len(fields) < 6 or len(rest) < 3 or not rest[0].startswith("cgroup"):
            continue
        path, version = fields[4], 2 if rest[0] == "cgroup2" else 1
        at = TREE if version == 2 else os.path.dirname(path)
        if at != TREE or (version == 2 and path != TREE):
            continue
        names = tuple(rest[2].split(",")) if version == 1 else ()
        # A later line lies over an earlier one
        found[path] = Mount(path, version, "rw" in fields[5].split(","), names)
    return tuple(found.values())


def make_scope(paths: Paths, node: str) -> None:
    """The group in which slurmd of this node puts its job steps; DshpcError where that cannot be.

    Only in version 2, and only once `prepare` has made the tree fit: else nothing is done.
    """
    if not os.path.isdir(f"{paths.at(TREE)}/{_OWN}"):
        return
    try:
        _make_scope(paths, node)
    except OSError as error:
        long = error.errno == errno.ENAMETOOLONG
        raise _refused(
            f"The control group of the node {shortened(node)} cannot be made: {error.strerror}.",
            ("Give the node a shorter name: NodeName in config/slurm.conf.",) if long else (),
        ) from None


def _make_scope(paths: Paths, node: str) -> None:
    tree = paths.at(TREE)
    # Debian's build names the group after the node (slurm's cgroup_v2.c, MULTIPLE_SLURMD)
    scope = f"{tree}/{_SLICE}/{node}_slurmstepd.scope"
    os.makedirs(scope, exist_ok=True)
    for folder in (f"{tree}/{_SLICE}", scope):
        _enable(folder)


def shared_node_error(machine: Machine, plan: ClusterPlan) -> DshpcError | None:
    """GPUs that the kernel cannot tell apart, or that it would refuse together with /dev/null."""
    if plan.isolation == "default":
        return None
    seen: dict[frozenset[tuple[int, int]], tuple[str, ...]] = {}
    for line in plan.gres:
        numbers = frozenset(filter(None, map(machine.device_number, line.files)))
        if any(major == _MEMORY_DEVICES for major, _ in numbers):
            why = f"{', '.join(line.files)}: a name of /dev/null or of another device that all jobs need."
        elif numbers and numbers in seen:
            why = f"{', '.join(seen[numbers])} and {', '.join(line.files)} are one device for the kernel."
        else:
            seen[numbers] = line.files
            continue
        return _refused(f"{why} It cannot be refused to a job by itself.", ())
    return None


def tier_error(texts: Mapping[str, str], isolation: str) -> DshpcError | None:
    """Where files of the user's own, or the last good ones, keep jobs less apart than was asked for."""
    if isolation == "default":
        return None
    for file, key, wanted in _WANTED:
        value = slurm_conf.last(texts.get(file, ""), key) or ""
        if wanted not in value.lower().split(","):
            return _refused(
                f"{file} has {key}={value}, which has to be {key}={wanted}."
                if value
                else f"{file} does not say {key}={wanted}.",
                (
                    f"Say {key}={wanted} in {file}, or let it be rendered again: remove it from config/.",
                ),
            )
    return None


def _needed(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Those that Slurm writes to, all of one version."""
    unified = tuple(mount for mount in mounts if mount.version == 2)
    if unified:
        return unified
    missing = [name for name in _V1 if not any(name in mount.controllers for mount in mounts)]
    if missing:
        raise _refused(
            f"There is no control group for: {', '.join(missing)} (nothing is mounted for it below {TREE}).",
            ("See what the kernel has: cat /proc/cgroups",),
        )
    wanted = (*_V1, _PIDS)
    return tuple(mount for mount in mounts if any(name in mount.controllers for name in wanted))


def _make_writable(machine: Machine, mount: Mount) -> None:
    # "bind" changes this mount alone; without it the whole hierarchy is meant, which is in use
    argv = ["mount", "-o", "remount,bind,rw", mount.path]
    done = machine.run(argv, deadline_s=_MOUNT_S)
    if not done.ok:
        raise _cannot(machine, done.text or f"mount: {done.state}")


def _empty_root(paths: Paths) -> None:
    """Move every process of the root group into a leaf, then hand the controllers down."""
    tree = paths.at(TREE)
    os.makedirs(f"{tree}/{_OWN}", exist_ok=True)
    until = time.monotonic() + _MOVE_S
    while True:
        for pid in _read(f"{tree}/cgroup.procs").split():
            _move(pid, f"{tree}/{_OWN}/cgroup.procs")
        try:
            return _enable(tree)
        except OSError:  # busy: `docker exec` has put a process here meanwhile
            if time.monotonic() >= until:
                raise
            time.sleep(0.01)


def _move(pid: str, procs: str) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        _write(procs, pid)


def _enable(folder: str) -> None:
    for name in _V2:
        _write(f"{folder}/cgroup.subtree_control", f"+{name}")
    with contextlib.suppress(OSError):  # without it the limit of all jobs together holds
        _write(f"{folder}/cgroup.subtree_control", f"+{_PIDS}")


def _try_rights(paths: Paths, version: int) -> None:
    tree = paths.at(TREE)
    if version == 2:
        device_rules.try_rule_v2(tree)
    else:
        device_rules.try_rule_v1(f"{tree}/devices")


def _swap_error(machine: Machine, version: int) -> DshpcError | None:
    """Slurm refuses to start where swap cannot be limited, and a job would go on in it beyond its memory."""
    file = f"{_SLICE}/memory.swap.max" if version == 2 else "memory/memory.memsw.limit_in_bytes"
    if machine.exists(f"{TREE}/{file}"):
        return None
    return _refused(
        "The kernel does not limit swap space for control groups.",
        ("Add swapaccount=1 to the kernel's command line and restart the machine.",),
    )


def _cores_error(machine: Machine, version: int) -> DshpcError | None:
    """Slurm numbers the machine's cores from 0: a container that has others gets jobs that cannot start.

    Seen with version 1 and --cpuset-cpus=1: "Slurmd could not execve job". In version 2 the kernel takes
    such a rule and ignores it.
    """
    file = "cpuset.cpus.effective" if version == 2 else "cpuset/cpuset.cpus"
    allowed = ranges.parse(machine.read(f"{TREE}/{file}").text)
    online = ranges.parse(machine.read("/sys/devices/system/cpu/online").text)
    threads = (machine.read("/sys/devices/system/cpu/smt/active").text or "").strip() == "1"
    first = frozenset(range(len(allowed)))
    if not allowed or not online or allowed >= online or (allowed == first and not threads):
        return None
    return _refused(
        f"The container is limited to some CPUs of the machine ({len(allowed)} of {len(online)}), and "
        "Slurm would give its jobs others.",
        ("Start it without --cpuset-cpus (cpuset); a limit by --cpus (cpus) is fine.",),
    )


def _cannot(machine: Machine, why: str) -> DshpcError:
    """The container has too few rights: which, as far as the kernel tells."""
    profile = (machine.read("/proc/self/attr/current").text or "").strip("\0\n ")
    options = ["--cap-add SYS_ADMIN"]
    if profile.endswith("(enforce)"):
        options.append("--security-opt apparmor=unconfined")
    elif ":container_t:" in profile:
        options.append("--security-opt label=disable")
    return _refused(
        f"It may not change its control groups: {why}",
        (
            "Start the container from the docker-compose.yml that `configure-environment` writes, or "
            f"with: docker run {' '.join(options)} ...",
        ),
    )


def _refused(why: str, steps: tuple[str, ...]) -> DshpcError:
    return DshpcError(
        "The setting isolation = enforced cannot be kept in this container: nothing was started.",
        why,
        (*steps, f"{BACK_TO_DEFAULT} && configure-environment"),
    )


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
