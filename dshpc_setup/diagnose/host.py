"""The machine that everything runs on: its system, processors, memory and disks."""

from __future__ import annotations

import re
from dataclasses import replace

from dshpc_setup import remedies
from dshpc_setup.diagnose.model import (
    Check,
    CheckInput,
    Verdict,
    fault,
    fine,
    not_here,
    note,
    unknown,
    warning,
)
from dshpc_setup.diagnose.unusable_settings import settings_elsewhere
from dshpc_setup.errors import Fix
from dshpc_setup.facts import HostFacts
from dshpc_setup.observed.model import Disk
from dshpc_setup.render import isolation

PROCESSORS = ("x86_64", "amd64", "aarch64", "arm64")
"""Those that the image was built and tested for."""

_OVERLAY_SINCE = (4, 0)  # Docker's overlay2
_LEAST_MIB = 1024
_LEAST_INODES = 1000
_LEAST_TMP_MIB = 64


def _platform(known: CheckInput) -> Verdict:
    facts = known.facts.platform
    read = f"{facts.kind}, {facts.os_id} {facts.os_version}, kernel {facts.kernel}"
    if facts.kind == "wsl1":
        return fault(
            "WSL1 has no Linux kernel, so Docker cannot run in it.",
            read,
            fix=remedies.move_to_wsl2(known.facts),
        )
    if facts.kind == "macos":
        return note(
            "On macOS containers run in a virtual machine that no GPU reaches: CPU only.",
            read,
            title="On macOS no GPU reaches containers",
        )
    return fine(read)


def _resources(known: CheckInput) -> Verdict:
    cpu, memory = known.facts.cpu, known.facts.memory
    read = (
        f"{cpu.usable} of {cpu.logical} CPUs, limited by {cpu.limited_by or 'nothing'}",
        f"{memory.limit_mib} of {memory.total_mib} MiB, limited by {memory.limited_by or 'nothing'}",
    )
    if memory.usable_mib is not None and memory.usable_mib < _LEAST_MIB:
        more = Fix("Give this machine, or Docker's virtual machine, more memory")
        return warning("Less than 1 GiB of memory is left for jobs.", *read, fix=(more,))
    return fine(*read)


def _cpus(known: CheckInput) -> Verdict:
    cpu = known.facts.cpu
    if cpu.usable is None:
        return unknown("How many CPUs there are is not known.")
    if cpu.usable > 1:
        return fine(f"{cpu.usable} CPUs")
    whose = f" The limit is: {cpu.limited_by}." if cpu.limited_by else ""
    return note(
        f"Jobs have one CPU, so CPU jobs run one at a time, beside Slurm's own daemons.{whose}",
        f"{cpu.usable} of {cpu.logical} CPUs",
    )


def _memory_limit(known: CheckInput) -> Verdict:
    """Whether somebody lets us have less than half of what the machine has."""
    memory = known.facts.memory
    if memory.limit_mib is None or memory.total_mib is None:
        return unknown("How much memory there is is not known.")
    read = f"{memory.limit_mib} of {memory.total_mib} MiB"
    if memory.limited_by is None or memory.limit_mib * 2 >= memory.total_mib:
        return fine(read)
    if memory.limited_by == "engine":
        return note(
            "Docker's machine has less than half of this machine's memory, and jobs get no more.",
            read,
            fix=(Fix("Raise it, where that is Docker Desktop: Settings, Resources, Memory"),),
        )
    if memory.limited_by == "cpuset":
        return note(
            "This session may use the memory of some NUMA nodes alone, less than half of the machine's, "
            "and the plan counts with no more.",
            read,
            fix=(Fix("See which nodes", "grep Mems_allowed_list /proc/self/status", step="look"),),
        )
    return note(
        "A control group gives this session less than half of the machine's memory, and the plan "
        "counts with no more.",
        read,
        fix=(Fix("See whose limit it is", "cat /proc/self/cgroup", step="look"),),
    )


def _processor(known: CheckInput) -> Verdict:
    arch = known.facts.engine.arch or known.facts.platform.arch
    if arch is None:
        return unknown("The type of processor is not known.")
    if arch in PROCESSORS:
        return fine(arch)
    return note(
        "The cluster's image is built and tested for x86_64 and aarch64 alone. Debian has Slurm for "
        "others, and NVIDIA's and AMD's libraries mostly not.",
        arch,
    )


def _kernel(known: CheckInput) -> Verdict:
    platform, engine = known.facts.platform, known.facts.engine
    if platform.kind not in ("linux", "wsl2"):
        return not_here("this system has no Linux kernel of its own")
    found = re.match(r"(\d+)\.(\d+)", platform.kernel or "", re.ASCII)
    if found is None:
        return unknown("The kernel does not tell its version.")
    read = f"kernel {platform.kernel}"
    if (int(found[1]), int(found[2])) < _OVERLAY_SINCE:
        return note(
            "This kernel is older than 4.0, from which on Docker's storage driver overlay2 works "
            "everywhere; nothing was tested on it.",
            read,
        )
    if _enforced(known) and engine.cgroup_version == 1:
        return note(
            "The isolation tier enforced works with control groups of version 1, which Slurm and "
            "Docker call deprecated.",
            read,
            "control groups of version 1",
            title="Control groups are of version 1",
        )
    return fine(read)


def _tier(known: CheckInput) -> Verdict:
    """Whether the isolation tier that was asked for can be had."""
    if known.plan is None or not _enforced(known):
        return not_here("the isolation tier enforced is not asked for")
    if known.facts.engine.state != "present":
        return unknown("The engine does not answer.")
    refused = isolation.refusal(known.facts.engine, known.plan)
    if refused is None:
        return fine("nothing that can be seen from outside speaks against it")
    return fault(f"{refused.brief} {refused.details}", fix=refused.fixes)


def _enforced(known: CheckInput) -> bool:
    return known.plan is not None and known.plan.isolation == "enforced"


def _project_disk(known: CheckInput) -> Verdict:
    """The work folder's, too, where that lies elsewhere; the project's is told first."""
    disk, work = _disk(known, "project"), _disk(known, "work")
    if disk is None:
        return not_here("no project folder was looked at")
    verdict = _room_for(
        disk,
        "The disk of the project folder is nearly full: files of the next run, and what jobs write "
        "to the work folder, may not fit.",
    )
    if verdict.state != "ok" or work is None:
        return verdict
    full = _room_for(
        work,
        "The disk of the work folder is nearly full: what jobs write may not fit, and where it is full, no "
        "job that has a workspace can be submitted.",
    )
    return verdict if full.state == "ok" else replace(full, title="The work folder's disk is full")


def _room_for(disk: Disk, cause: str) -> Verdict:
    look = f"du -xh --max-depth=2 {disk.path} | sort -h | tail"
    return _room(disk, _LEAST_MIB, cause, Fix("See what takes the room there", look, step="look"))


def _tmp_disk(known: CheckInput) -> Verdict:
    disk = _disk(known, "tmp")
    if disk is None:
        return not_here("/tmp was not looked at")
    return _room(
        disk,
        _LEAST_TMP_MIB,
        f"{disk.path} is nearly full: commands of dshpc, Docker and the drivers' tools write there "
        "while they run, and fail.",
        Fix(
            "See what takes the room there",
            f"du -xh --max-depth=1 {disk.path} | sort -h | tail",
            step="look",
        ),
    )


def _disk(known: CheckInput, what: str) -> Disk | None:
    return next((item for item in known.observed.disks if item.what == what), None)


def _room(disk: Disk, least_mib: int, cause: str, step: Fix) -> Verdict:
    read = f"{disk.path}: {disk.free_mib} of {disk.size_mib} MiB free"
    if disk.free_mib < least_mib:
        return warning(cause, read, fix=(step,))
    if disk.free_inodes is not None and disk.free_inodes < _LEAST_INODES:
        files = Fix(
            "See which folders hold most files",
            f"du -x --inodes {disk.path} | sort -n | tail",
            step="look",
        )
        return warning(
            f"{disk.path} has room, but hardly a file more can be made there: its inodes are used up.",
            read,
            f"{disk.free_inodes} inodes free",
            fix=(files,),
        )
    return fine(read)


def _container(known: CheckInput) -> Verdict:
    platform = known.facts.platform
    if not platform.in_container:
        return fine("this is no container")
    read = f"in a container ({platform.container or 'of an unknown kind'})"
    if known.facts.engine.state == "present":
        title = "This runs in a container that reaches a Docker engine"
        return replace(fine(read), title=title)
    return note(
        "This runs in a container that reaches no Docker engine: a cluster cannot be set up from "
        "here, and only what was handed to the container is seen.",
        read,
        fix=(Fix("Run it on the machine itself", "dshpc doctor"),),
    )


def _selinux(known: CheckInput) -> Verdict:
    mode = known.facts.platform.selinux
    if mode is None:
        return not_here("there is no SELinux")
    if mode != "enforcing":
        return fine(f"SELinux is {mode}")
    return note(
        "SELinux is enforcing. The cluster's folders are labelled for containers (:z), and a "
        "container opens GPUs only where the policy allows it.",
        "SELinux is enforcing",
    )


def _answers(known: CheckInput) -> Verdict:
    # The engine has checks of its own for each way not to answer; a driver that answers with an error
    # has answered
    asked = known.facts.unanswered()
    silent = [
        str(item)
        for item in asked
        if item.about not in ("docker", "engine")
        and not (item.about == "gpus" and item.state == "error")
    ]
    if not silent:
        return replace(fine(), title="Every other question got an answer" if asked else None)
    return warning(
        "These questions got no answer, so that what is said of them is not complete.",
        *silent,
        fix=_ask_again(known.facts),
    )


def _ask_again(facts: HostFacts) -> tuple[Fix, ...]:
    late = any(item.state == "timeout" for item in facts.evidence)
    again = Fix("See each question and its answer", "dshpc detect --explain", step="look")
    longer = Fix("Give them more time", "dshpc detect --deadline 60")
    return (again, longer) if late else (again,)


CHECKS: tuple[Check, ...] = (
    Check("DSH-HO-001", "host", "The system can run the cluster",
          "This system cannot run the cluster", _platform),
    Check("DSH-HO-002", "host", "There is room for jobs", "There is little memory for jobs",
          _resources),
    Check("DSH-HO-003", "host", "There is more than one CPU", "There is one CPU alone", _cpus),
    Check("DSH-HO-004", "host", "Jobs get the machine's memory",
          "Memory is limited far below the machine's", _memory_limit),
    Check("DSH-HO-005", "host", "The processor is one that the image is for",
          "The image is not for this type of processor", _processor),
    Check("DSH-HO-006", "host", "The kernel is new enough", "The kernel is old", _kernel),
    Check("DSH-HO-007", "host", "The isolation tier can be kept",
          "The isolation tier enforced cannot be kept", _tier),
    Check("DSH-HO-008", "host", "The project's disk has room", "The project's disk is full",
          _project_disk, because=("DSH-DK-081",)),
    Check("DSH-HO-009", "host", "/tmp has room", "/tmp is full", _tmp_disk,
          because=("DSH-DK-081",)),
    Check("DSH-HO-010", "host", "This runs on the machine itself",
          "This runs in a container without an engine", _container),
    Check("DSH-HO-011", "host", "SELinux lets containers be", "SELinux is enforcing", _selinux),
    Check("DSH-HO-012", "host", "The settings can be used", "A setting cannot be used",
          settings_elsewhere),
    Check("DSH-HO-013", "host", "Every question got an answer", "Some questions got no answer",
          _answers, because=("DSH-NV-022", "DSH-NV-083", "DSH-GP-001")),
)  # fmt: skip
