"""The Docker engine: what answers, what kind of engine it really is, and the tools beside it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from dshpc_setup.engine_client import BUILTIN
from dshpc_setup.facts import Because, Compose, Engine, EngineKind, Evidence
from dshpc_setup.machine import Machine, Reply
from dshpc_setup.probes import compose, platform
from dshpc_setup.probes.trace import Found, Trace, kept

_T = TypeVar("_T")

DOCKER_DESKTOP, RANCHER_DESKTOP = "Docker Desktop", "Rancher Desktop"
_TOOL_S = 5.0
_LOOPBACK = r"\w+://(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])(?::|/|$)"


@dataclass(frozen=True)
class ThisMachine:
    """What this machine is called, to be compared with what the engine says of its own."""

    release: str = ""
    hostname: str = ""


@dataclass(frozen=True)
class Kind:
    """The kind of an engine, what it shows by, and why it is none of the others."""

    name: EngineKind
    source: str
    says: str


def probe(machine: Machine, deadline_s: float) -> Found[Engine]:
    """The engine of the current context, and compose and buildx where they are installed."""
    look = Trace(machine, deadline_s)
    tool_s = look.tool_s(_TOOL_S)
    # Beside the question to the engine, since each tool takes tens of milliseconds.
    plugin = _Beside(lambda: compose.plugin(machine, tool_s))
    program = _Beside(lambda: compose.program(machine, tool_s))
    builder = _Beside(lambda: compose.buildx(machine, tool_s))
    reply = machine.docker(deadline_s)
    here = ThisMachine(machine.system[1], look.text("/proc/sys/kernel/hostname") or "")
    fact = parse(reply, here)
    look.saw("engine", fact.state, fact.host or "docker", fact.detail, reply.code)
    found = [plugin.answer(), program.answer()]
    buildx, built = builder.answer()
    composes = tuple(item for item, _ in found if item is not None)
    first = composes[0] if composes else None
    disk_mib = _disk_mib(machine, fact)
    fact = replace(fact, compose=first, composes=composes, buildx=buildx, disk_mib=disk_mib)
    _conclude_engine(look, reply, fact, here)
    late = [item for item in (each for _, each in found) if item.state == "timeout"]
    _conclude_compose(look, composes, late)
    done = look.found(fact)
    tools = (*(evidence for _, evidence in found), built)
    return replace(done, evidence=(*done.evidence, *tools))


def _disk_mib(machine: Machine, fact: Engine) -> int | None:
    """Where its containers lie, if that is in our file tree: containers have the same /tmp."""
    elsewhere = fact.kind in ("desktop", "remote") or platform.in_container(machine)
    return None if elsewhere or not fact.root_dir else machine.disk_mib(fact.root_dir)


class _Beside(Generic[_T]):
    """A question answered in a thread of its own; an error of it is raised by `answer`."""

    def __init__(self, ask: Callable[[], _T]) -> None:
        self._ask = ask
        self._found: list[_T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._ask())
        except BaseException as error:  # noqa: BLE001
            self._error = error

    def answer(self) -> _T:
        self._thread.join()  # what it waits for has a deadline
        if self._error is not None:
            raise self._error
        return self._found[0]


def parse(reply: Reply, here: ThisMachine) -> Engine:
    """The fact, without the tools; of garbage, an `error` with the text of it."""
    value = reply.value if isinstance(reply.value, dict) else {}
    host = _text(value.get("host"))
    context = _text(value.get("context"))
    if reply.state != "present":
        detail = reply.detail or "no answer"
        return Engine(reply.state, host=host or reply.source, context=context, detail=detail)
    version, info = _object(value.get("version")), _object(value.get("info"))
    if not version or not info:
        what = "version" if not version else "info"
        text = kept(str(value.get(what) or ""))
        seen = f"cannot be understood: {text}" if text else "is empty"
        detail = f"the engine's answer to `{what}` {seen}"
        return Engine("error", host=host, context=context, detail=detail)
    options = _texts(info.get("SecurityOptions"))
    memory = _count(info.get("MemTotal"))
    cgroup = _text(info.get("CgroupVersion"))
    return Engine(
        state="present",
        server_version=_text(version.get("Version")) or _text(info.get("ServerVersion")),
        api_version=_text(version.get("ApiVersion")),
        kind=(kind := kind_of(version, info, host, here).name),
        product=_other_product(info) if kind == "desktop" else None,
        rootless=any(re.match(r"name=rootless\b", option) for option in options),
        cgroup_driver=_text(info.get("CgroupDriver")),
        cgroup_version=int(cgroup) if cgroup in ("1", "2") else None,
        runtimes=tuple(sorted(_object(info.get("Runtimes")))),
        default_runtime=_text(info.get("DefaultRuntime")),
        cdi_devices=_cdi(info),
        cdi_folders=_texts(info.get("CDISpecDirs")),
        context=context,
        host=host,
        name=_text(info.get("Name")),
        os_type=_text(info.get("OSType")),
        arch=_text(info.get("Architecture")),
        cpus=_count(info.get("NCPU")) or None,
        memory_mib=(memory or 0) >> 20 or None,
        security_options=options,
        root_dir=_text(info.get("DockerRootDir")),
        storage_driver=_text(info.get("Driver")),
        log_driver=_text(info.get("LoggingDriver")),
        engine_id=_text(info.get("ID")),
    )


def kind_of(
    version: Mapping[str, Any], info: Mapping[str, Any], host: str | None, here: ThisMachine
) -> Kind:
    """Podman and Desktop say so; a snap shows in its folder; another kernel is another machine."""
    if _object(version.get("Platform")).get("Name") == BUILTIN:
        return Kind(BUILTIN, "the project's settings", "they name the engine of our own")
    components = version.get("Components")
    names = [
        str(item.get("Name", "")) if isinstance(item, dict) else ""
        for item in (components if isinstance(components, list) else [])
    ]
    if podman := next((name for name in names if "podman" in name.lower()), None):
        return Kind("podman", "docker version, Components", f"it calls itself {podman[:80]!r}")
    if (product := product_of(info)) is not None:
        source, says = product
        return Kind("desktop", f"docker info, {source}", f"it says {says!r}")
    folder = str(info.get("DockerRootDir", ""))
    if folder.startswith(("/var/snap/", "/snap/")):
        return Kind("snap", "docker info, DockerRootDir", f"{folder} belongs to a snap")
    host = host or ""
    if host.startswith("ssh://"):
        return Kind("remote", "the endpoint", f"{host} is reached by ssh")
    kernel = info.get("KernelVersion")
    # The kernel of a local engine is ours; a forwarded socket's or a VM's is not.
    if isinstance(kernel, str) and kernel and here.release and kernel != here.release:
        return Kind("remote", "docker info, KernelVersion", f"{kernel}, and ours is {here.release}")
    name = _text(info.get("Name")) or ""
    named = bool(name) and _first_label(name) == _first_label(here.hostname)
    if re.match(r"\w+://", host) and not re.match(f"unix://|{_LOOPBACK}", host) and not named:
        return Kind("remote", "the endpoint", f"{host} is no address of this machine alone")
    if kernel and here.release:
        return Kind("engine", "docker info, KernelVersion", f"{kernel}, and ours is the same")
    return Kind("engine", "the endpoint", f"{host or 'it'} is this machine's")


def product_of(info: Mapping[str, Any]) -> tuple[str, str] | None:
    """Which field names an application that brings the engine, and the application.

    Rancher Desktop's engine in WSL says "Rancher Desktop WSL Distribution", with " (containerized)" in
    later releases, and has the very kernel of the user's own distribution; on macOS its virtual
    machine is an Alpine Linux by the name of lima-rancher-desktop.
    """
    system = str(info.get("OperatingSystem", "")).lower()
    if "docker desktop" in system:
        return "OperatingSystem", DOCKER_DESKTOP
    if system.startswith("rancher desktop"):
        return "OperatingSystem", RANCHER_DESKTOP
    return ("Name", RANCHER_DESKTOP) if info.get("Name") == "lima-rancher-desktop" else None


def _other_product(info: Mapping[str, Any]) -> str | None:
    product = (product_of(info) or ("", DOCKER_DESKTOP))[1]
    return None if product == DOCKER_DESKTOP else product


def _first_label(name: str) -> str:
    return name.lower().partition(".")[0]


_WHY_NOT: Mapping[EngineKind, str] = {
    "podman": "no component of it calls itself Podman",
    "desktop": "its operating system is not Docker Desktop",  # nor Rancher Desktop
    "snap": "its folder belongs to no snap",
    "remote": "its kernel and its endpoint are this machine's",
    "engine": "that is a plain engine on this machine",
    "builtin": "it answers as another one",
}


def _conclude_engine(look: Trace, reply: Reply, fact: Engine, here: ThisMachine) -> None:
    where = f"context {fact.context or 'default'}"
    if fact.state != "present":
        look.concluded(
            "docker.state",
            fact.state,
            (fact.host or "docker", fact.detail or "no answer"),
            instead=_other_sockets(look, fact),
        )
        return
    value = _object(reply.value)
    kind = kind_of(_object(value.get("version")), _object(value.get("info")), fact.host, here)
    others = [other for other in _WHY_NOT if other != kind.name]
    look.concluded(
        "docker.kind",
        kind.name,
        (kind.source, kind.says),
        (where, fact.host or "the endpoint is not known"),
        # Which is looked for first: what comes after the kind that it is was not looked at.
        instead=[
            (other, _WHY_NOT[other] if other != "engine" else f"{kind.source}: {kind.says}")
            for other in others
            if other == "engine" or _rank(other) < _rank(kind.name)
        ],
    )


def _rank(kind: EngineKind) -> int:
    return list(_WHY_NOT).index(kind)


def _other_sockets(look: Trace, fact: Engine) -> list[Because]:
    """Engines that are there and that nobody has chosen."""
    uid = look.machine.uid
    chosen = fact.host or ""
    return [
        Because(
            name, f"unix://{path} is there, and neither DOCKER_HOST nor the context names it", key
        )
        for name, path, key in _sockets(uid)
        if path not in chosen and look.machine.exists(path)
    ]


def _sockets(uid: int) -> tuple[tuple[str, str, Literal["own-rootless-engine"] | None], ...]:
    return (
        ("rootless Docker", f"/run/user/{uid}/docker.sock", "own-rootless-engine"),
        ("rootless Podman", f"/run/user/{uid}/podman/podman.sock", None),
        ("Podman", "/run/podman/podman.sock", None),
        ("Docker", "/var/run/docker.sock", None),
    )


def _conclude_compose(look: Trace, composes: tuple[Compose, ...], late: list[Evidence]) -> None:
    if not composes and late:
        because = [(item.source, item.detail or "no answer in time") for item in late]
        look.concluded("docker.compose", "not known (timeout)", *because)
        return
    if not composes:
        why = "neither `docker compose` nor `docker-compose` says its version"
        look.concluded("docker.compose", "none", ("docker compose, docker-compose", why))
        return
    first, *others = composes
    look.concluded(
        "docker.compose",
        f"{first.version} ({' '.join(first.argv)})",
        (" ".join(first.argv), f"version {first.version}"),
        instead=[
            (f"{item.version} ({' '.join(item.argv)})", "the plugin is used where there is one")
            for item in others
        ],
    )


def _cdi(info: Mapping[str, Any]) -> tuple[str, ...]:
    found = info.get("DiscoveredDevices")
    names = [
        item.get("ID")
        for item in (found if isinstance(found, list) else [])
        if isinstance(item, dict) and item.get("Source") == "cdi"
    ]
    return tuple(sorted(name for name in names if isinstance(name, str)))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value or None if isinstance(value, str) else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(
        item for item in (value if isinstance(value, list) else ()) if isinstance(item, str)
    )


def _count(value: object) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 62
    return value if good else None  # type: ignore[return-value]
