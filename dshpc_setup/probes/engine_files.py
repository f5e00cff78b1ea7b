"""What this machine's own files say of the engine on it: its settings, and when it was started.

An engine reads daemon.json and looks for NVIDIA's hook when it starts, so what was installed later is
not in force (moby: daemon/nvidia_linux.go).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.documents import foreign
from dshpc_setup.facts import Because, Engine, Toolkit
from dshpc_setup.machine import Machine
from dshpc_setup.probes.container import Sign, signs
from dshpc_setup.probes.trace import Trace, kept, whole_number

Which = Literal["engine", "snap", "rootless", "other"]

SNAP_DATA = "/var/snap/docker/current"

_SOCKETS = ("/var/run/docker.sock", "/run/docker.sock")
# Containers that are whole machines: an engine that answers in one runs there.
_LIKE_MACHINES = ("lxc", "systemd-nspawn")
_TICKS_PER_S = 100  # USER_HZ, of every architecture that has an engine
# The kernel tells whole seconds for its own start, and cuts them off: an engine that was restarted
# in the second of the installation must not seem older.
_CLOCK_S = 1.1


@dataclass(frozen=True)
class Daemon:
    """An engine that may run here: where its settings are and what they say, and its start."""

    settings: str  # the path of its daemon.json
    runtimes: tuple[str, ...] = ()  # that daemon.json names
    log_max_size: str | None = None  # as it names it
    sockets: tuple[str, ...] = _SOCKETS
    started: float | None = None  # seconds since the epoch
    source: str = ""  # what tells of the start


@dataclass(frozen=True)
class Container:
    """The container that we are in, and what tells whether the engine is in it as well."""

    sign: Sign
    hostname: str = ""
    mounted: frozenset[str] = frozenset()  # mount points: a socket that is one is from outside


def fetch(look: Trace) -> dict[Which, Daemon]:
    """The engines that may run here, by what they are."""
    machine = look.machine
    home = machine.env.get("XDG_CONFIG_HOME") or f"{machine.env.get('HOME', '')}/.config"
    runtime = f"/run/user/{machine.uid}"
    places: list[tuple[Which, str, str, tuple[str, ...]]] = [
        ("engine", "/etc/docker/daemon.json", "/var/run/docker.pid", _SOCKETS),
        ("snap", f"{SNAP_DATA}/config/daemon.json", f"{SNAP_DATA}/run/docker.pid", _SOCKETS),
        ("rootless", f"{home}/docker/daemon.json", f"{runtime}/docker.pid",
         (f"{runtime}/docker.sock",)),
    ]  # fmt: skip
    chosen = machine.env.get("DOCKER_HOST", "")
    socket = chosen.removeprefix("unix://")
    if chosen.startswith("unix:///") and socket not in (*_SOCKETS, f"{runtime}/docker.sock"):
        # One that somebody started by hand: mostly all of its files are together.
        folder = posixpath.dirname(socket)
        places.append(("other", f"{folder}/daemon.json", f"{folder}/docker.pid", (socket,)))
    booted = _Booted(machine)
    return {
        which: Daemon(settings, *_settings(look, settings), sockets, *_started(booted, pid_file))
        for which, settings, pid_file, sockets in places
    }


def _settings(look: Trace, path: str) -> tuple[tuple[str, ...], str | None]:
    """The names of its runtimes, and `log_max_size`."""
    read = look.machine.read(path)
    if read.state == "absent":
        return (), None
    if read.text is None:
        look.saw("daemon.json", read.state, path, read.detail or "it cannot be read")
        return (), None
    found = parse_settings(read.text)
    if found is None:
        look.saw("daemon.json", "error", path, f"it is not JSON object: {kept(read.text)}")
        return (), None
    names, _ = found
    told = f"it names the runtimes {', '.join(names)}" if names else "it names no runtime"
    look.saw("daemon.json", "present", path, told)
    return found


def parse_settings(text: str) -> tuple[tuple[str, ...], str | None] | None:
    """The names of `runtimes` in a daemon.json, sorted, and its `max-size` of logs; None where the text
    is no JSON object."""
    try:
        value = foreign.value(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    runtimes, options = value.get("runtimes"), value.get("log-opts")
    size = options.get("max-size") if isinstance(options, dict) else None
    return (
        tuple(sorted(filter(None, runtimes))) if isinstance(runtimes, dict) else (),
        kept(size) if isinstance(size, str) and size else None,
    )


class _Booted:
    """When the machine was started, asked once and only if it is needed."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._found: float | None = None

    def seconds(self) -> float | None:
        if self._found is None:
            self._found = parse_boot(self.machine.read("/proc/stat").text or "")
        return self._found


def _started(booted: _Booted, pid_file: str) -> tuple[float | None, str]:
    pid = whole_number(booted.machine.read(pid_file).text)
    if pid is None or pid <= 0:
        return None, ""
    source = f"/proc/{pid}/stat"
    ticks = parse_start(booted.machine.read(source).text or "")
    boot = booted.seconds() if ticks is not None else None
    if ticks is None or boot is None:
        return None, ""
    return boot + ticks / _TICKS_PER_S, source


def parse_start(text: str) -> int | None:
    """Field 22 of /proc/PID/stat, in ticks since the machine's start; None where it is no dockerd.

    The number in a pid file may have gone to another process. A name may hold blanks and brackets.
    """
    before, _, after = text.rpartition(")")
    name, fields = before.partition("(")[2], after.split()
    if not name.startswith("dockerd") or len(fields) < 20:
        return None
    return whole_number(fields[19])


def parse_boot(text: str) -> float | None:
    """btime of /proc/stat: seconds since the epoch."""
    match = re.search(r"^btime ([0-9]{1,12})$", text, re.MULTILINE)
    return float(match[1]) if match else None


def container(look: Trace) -> Container | None:
    """The container that we are in; None in none, and in one that is like a machine."""
    found = signs(look)
    if not found or found[0].engine in _LIKE_MACHINES:
        return None
    name = look.text("/proc/sys/kernel/hostname") or ""
    lines = (look.text("/proc/self/mountinfo") or "").splitlines()
    points = frozenset(_real(point) for line in lines for point in line.split(" ")[4:5])
    return Container(found[0], name, points)


def _real(path: str) -> str:
    return path.removeprefix("/var") if path.startswith("/var/run/") else path


# -- which of them answers ---------------------------------------------------------------------------


def chosen(engine: Engine, daemons: Mapping[Which, Daemon]) -> Daemon | None:
    """The one that answered; None where that is not known to run here."""
    if engine.state != "present" or engine.kind not in ("engine", "snap"):
        return None
    if engine.kind == "snap":
        return daemons.get("snap")
    socket = (engine.host or "").removeprefix("unix://")
    return next(
        (each for which, each in daemons.items() if which != "snap" and socket in each.sockets),
        None,
    )


def outside(
    engine: Engine, daemons: Mapping[Which, Daemon], around: Container | None
) -> tuple[Because, ...]:
    """Why the engine that answers is not in the container that we are in; () where it may be.

    Its own files are then not ours to see: a toolkit that we do not find may be there.
    """
    if (
        around is None
        or engine.state != "present"
        or any(each.started for each in daemons.values())
    ):
        return ()
    ours = Because(around.sign.source, f"{around.sign.says}: we are in a container")
    if _real((engine.host or "").removeprefix("unix://")) in around.mounted:
        return ours, Because(f"{engine.host}", "its socket is mounted into the container")
    if around.hostname and engine.name and engine.name != around.hostname:
        name = f"{engine.name}, and ours is {around.hostname}"
        return ours, Because("docker info, Name", name)
    return ()


def newer(
    daemon: Daemon | None, toolkits: Iterable[Toolkit], changed: Mapping[str, float]
) -> tuple[str, ...]:
    """The files that were installed or changed after the engine was started; () if not known.

    CDI specifications are not among them: an engine that knows them reads them when they change.
    """
    if daemon is None or daemon.started is None:
        return ()
    since = daemon.started + _CLOCK_S
    return tuple(path for path in _files(daemon, toolkits, changed) if changed[path] > since)


def _files(
    daemon: Daemon, toolkits: Iterable[Toolkit], changed: Mapping[str, float]
) -> Iterator[str]:
    """Those that count for this engine: the settings of the others do not."""
    programs = {path for each in toolkits for path in (each.hook, each.runtime)}
    for path in changed:
        if path in programs or path == daemon.settings or path.endswith("/config.toml"):
            yield path
