"""`dshpc-node observe`: what the container says of itself for doctor, also where its start failed.

Nothing here needs slurmctld, and nothing is changed. Each question is asked apart: one that hangs costs
its own answer and no other. No key, no password and no environment is in what is printed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import date, datetime, timezone
from itertools import islice
from typing import Any

from dshpc_setup import __version__
from dshpc_setup.container import (
    check,
    hardware,
    key_set,
    nodes,
    observe_daemons,
    other_users,
    programs,
    task_prolog,
    worker,
)
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import GpuDevice, HostFacts
from dshpc_setup.files.storage import read_text
from dshpc_setup.machine import Machine, Say, earlier
from dshpc_setup.observed import idle
from dshpc_setup.observed.model import (
    Disk,
    Inside,
    KeyFile,
    NamedProgram,
    OtherUser,
    WorkFolder,
)
from dshpc_setup.settings import Settings, of_container
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import Paths
from dshpc_setup.usage import live

DEADLINE_S = 5.0
_PACKAGES = "/etc/dshpc/packages"
WORK = "DSHPC_OBSERVED_WORK"
_MOST_TEXT = 64 << 10
_MOST_FILES = 100_000


def observe(
    machine: Machine,
    paths: Paths,
    env: Mapping[str, str],
    *,
    deadline_s: float = DEADLINE_S,
) -> Inside:
    """All that can be said within the deadline; what cannot keeps its default."""
    left_s = earlier(deadline_s)
    questions: dict[str, Callable[[Say], None]] = {
        "hardware": lambda say: _hardware(machine, env, left_s, say),
        "slurm": lambda say: say(observe_daemons.slurm(machine, paths, left_s)),
        "daemons": lambda say: say({"daemons": observe_daemons.daemons(machine, paths, left_s)}),
        "devices": lambda say: _devices(machine, paths, say),
        "files": lambda say: _files(paths, say),
        "name": lambda say: say(_name(machine, left_s)),
        "controller": lambda say: say(_controller(machine, env, left_s)),
        "work": lambda say: say(work_folder(env.get(WORK))),
        "other_work": lambda say: say({"other_work": nodes.other_work(paths)}),
        "tasks": lambda say: say({"task_prolog": task_prolog.failed(machine, paths, left_s)}),
    }
    found: dict[str, Any] = {"time": time.time(), "wheel_version": __version__}
    found["gpus_state"] = "timeout"  # until it is said
    found.update(_configuration(paths), zombies=zombies(machine), **processes(machine))
    found.update(other_users=_other_users(paths))
    found.update(packages(machine), idle_gpus=idle.of_kept(live.read(None)))
    devices: dict[str, bool] = {}
    for end in machine.apart(questions, deadline_s=deadline_s).values():
        for item in end.items:
            devices.update(item.pop("device_files", {}))
            found.update(item)
    running = found.pop("running_version", None)
    return observe_daemons.with_running(Inside(**{**found, "device_files": devices}), running)


def to_json(inside: Inside) -> dict[str, Any]:
    """The fields of observed.Inside."""
    return asdict(inside)


def _other_users(paths: Paths) -> tuple[OtherUser, ...]:
    try:
        return other_users.on_other_machines(paths)
    except DshpcError:  # the list of users is damaged: the start says so
        return ()


# The container


def _hardware(machine: Machine, env: Mapping[str, str], deadline_s: float, say: Say) -> None:
    try:
        settings = of_container(env)
    except DshpcError:  # the start says what is wrong with it
        settings = Settings()
    facts = hardware.look(machine, settings.simulate, deadline_s=deadline_s)
    say({"memory_limit_mib": facts.memory.limit_mib, "cpus": facts.cpu.usable})
    say({"gpu_problems": {_named(it): it.problems for it in facts.gpus.devices if it.problems}})
    facts, _ = hardware.only_visible(facts, machine.is_device)
    say({"gpus": _types(facts, settings), "gpus_state": facts.gpus.state})


def _types(facts: HostFacts, settings: Settings) -> tuple[str, ...]:
    """As a start would name them now, MIG instances each."""
    from dshpc_setup.plan import plan_cluster

    try:
        return tuple(line.slurm_type for line in plan_cluster(facts, settings).gres)
    except DshpcError:  # a GPU that is named in the settings is not there
        return tuple(gpu.slurm_type for gpu in facts.gpus.devices)


def _named(gpu: GpuDevice) -> str:
    return f"GPU {gpu.index} ({gpu.name or gpu.slurm_type})"


def _today() -> date:
    return datetime.now(timezone.utc).date()


def packages(machine: Machine) -> dict[str, Any]:
    """What the image's build wrote down of its packages: the day, and Slurm's version at Debian."""
    day, _, rest = (machine.read(_PACKAGES).text or "").partition("\n")
    try:
        since = _today() - date.fromisoformat(day)
    except ValueError:
        return {}
    return {"packages_days": since.days, "slurm_package": rest.strip() or None}


def processes(machine: Machine) -> dict[str, int | None]:
    """The container's limit of processes, and how often it was met since the container was made.

    Slurm makes no control group for them: all are counted in the container's own.
    """
    for folder in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup"):  # version 1, version 2
        limit = machine.read(f"{folder}/pids.max").text
        if limit is not None:
            events = re.search(
                r"^max (\d+)$", machine.read(f"{folder}/pids.events").text or "", re.M
            )
            return {
                "pids_limit": slurm_conf.number(limit.strip()),
                "pids_refused": int(events[1]) if events else 0,
            }
    return {}


def _configuration(paths: Paths) -> dict[str, Any]:
    """The texts in force, without passwords, and what slurm.conf says of this node."""
    names = ("slurm", "gres", "cgroup")
    texts = {f"{name}_conf": _text(f"{paths.etc_slurm}/{name}.conf") for name in names}
    entry = slurm_conf.node(texts["slurm_conf"] or "", _node(paths))
    values = entry.values if entry else {}
    return {
        **texts,
        "node_real_memory_mib": slurm_conf.number(values.get("realmemory")),
        "node_cpus": slurm_conf.number(values.get("cpus")),
    }


def _text(path: str) -> str | None:
    try:
        text = read_text(path)
    except OSError:
        return None
    if text is None or len(text) > _MOST_TEXT:
        return None
    text = worker.as_read(text)
    return slurm_conf.without_passwords(text.encode("utf-8", "replace").decode())


def _node(paths: Paths) -> str:
    try:
        return (read_text(f"{paths.run}/node") or "").strip()
    except OSError:
        return ""


def _devices(machine: Machine, paths: Paths, say: Say) -> None:
    """Each one is told as no before it is opened: a driver that hangs leaves it so."""
    for path in device_files(paths):
        say({"device_files": {path: False}})
        if machine.is_device(path) and _opens(paths.at(path)):
            say({"device_files": {path: True}})


def device_files(paths: Paths) -> tuple[str, ...]:
    """Of the gres.conf in force, for this node."""
    node = _node(paths)
    entries = slurm_conf.entries(_text(f"{paths.etc_slurm}/gres.conf") or "")
    found = (
        path
        for entry in entries
        if not node or slurm_conf.applies(entry, node)
        for path in check.device_files(entry.line)
    )
    return tuple(dict.fromkeys(islice(found, check.MOST_DEVICES)))


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except (OSError, ValueError):
        return False
    return True


def _files(paths: Paths, say: Say) -> None:
    say({"programs": unusable_programs(paths)})
    say({"key": key_file(paths)})
    say({"state_volume": _volume(paths)})
    say({"state_files_mib": sum(_sizes(paths.state)) >> 20})


def unusable_programs(paths: Paths) -> tuple[NamedProgram, ...]:
    """Those of the slurm.conf in force."""
    text = _text(f"{paths.etc_slurm}/slurm.conf") or ""
    return tuple(program for _, program in programs.faults(text, programs.fault))


def key_file(paths: Paths) -> KeyFile:
    """What can be said of the key without saying anything of what is in it."""
    # The one judge of a key; reading it costs a start's worth of imports
    from dshpc_setup.container.keys import why_refused

    try:
        found = os.lstat(paths.key)
    except (FileNotFoundError, NotADirectoryError):
        return KeyFile("absent")
    except PermissionError:
        return KeyFile("denied")
    except OSError as error:
        return KeyFile("error", detail=error.strerror)
    seen = KeyFile("present", stat.S_IMODE(found.st_mode), _user(found.st_uid), found.st_size)
    if problem := why_refused(found):
        return replace(seen, detail=problem)
    try:
        with open(paths.key, "rb") as file:
            seen = replace(seen, kid=key_set.parse(file.read()).current.kid)
    except PermissionError:
        return replace(seen, state="denied")
    except OSError as error:
        return replace(seen, state="error", detail=error.strerror)
    except (ValueError, KeyError):  # its words may hold a part of the key
        return replace(seen, detail="it is damaged")
    return seen


def _user(uid: int) -> str:
    """Its name; Slurm's where several names have this id, as where a container has one id alone."""
    import pwd

    try:
        if pwd.getpwnam("slurm").pw_uid == uid:
            return "slurm"
    except KeyError:
        pass
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def work_folder(path: str | None) -> dict[str, WorkFolder]:
    """By its number, which is the same wherever one file system is mounted; {} where none is named."""
    if not path:
        return {}
    try:
        return {"work": WorkFolder(os.stat(path).st_ino)}
    except OSError:
        return {"work": WorkFolder()}


def _volume(paths: Paths) -> Disk | None:
    try:
        found = os.statvfs(paths.state)
    except OSError:
        return None
    size, free = (blocks * found.f_frsize >> 20 for blocks in (found.f_blocks, found.f_bavail))
    inodes = found.f_favail if found.f_files else None
    path = Paths().state
    return Disk("state", path, free, size, inodes) if size else None  # some do not tell


def _sizes(folder: str) -> Iterable[int]:
    paths = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    for path in islice(paths, _MOST_FILES):
        try:
            yield os.lstat(path).st_size
        except OSError:  # gone meanwhile
            continue


def zombies(machine: Machine) -> int:
    """Processes of this container that ended and that nobody has taken off the list."""
    pids = filter(str.isdecimal, machine.listdir("/proc"))
    stats = (machine.read(f"/proc/{pid}/stat").text or "" for pid in pids)
    return sum(text.rpartition(")")[2].split()[:1] == ["Z"] for text in stats)


def _name(machine: Machine, deadline_s: float) -> dict[str, Any]:
    import socket

    name = socket.gethostname()
    asked = machine.run(["getent", "hosts", name], deadline_s=deadline_s)
    resolves = asked.ok if asked.state == "present" else None
    return {"host_name": name, "host_name_resolves": resolves}


def _controller(machine: Machine, env: Mapping[str, str], deadline_s: float) -> dict[str, Any]:
    """Of a worker: whether it finds the controller by the name that its slurm.conf has."""
    if env.get("DSHPC_ROLE") != "worker":
        return {}
    asked = machine.run(["getent", "hosts", env.get("DSHPC_PREFIX", "")], deadline_s=deadline_s)
    return {"controller_resolves": asked.ok if asked.state == "present" else None}
