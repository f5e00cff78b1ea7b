"""The Docker engine: what answers, what kind of engine it really is, and the tools beside it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from dshpc_setup.facts import Compose, Engine, EngineKind
from dshpc_setup.machine import CommandResult, Machine, Reply
from dshpc_setup.probes.look import Found, Look

_T = TypeVar("_T")

_TOOL_S = 5.0
_COMPOSE_V2 = ("docker", "compose")
_COMPOSE_V1 = ("docker-compose",)


def probe(machine: Machine, deadline_s: float) -> Found[Engine]:
    """The engine of the current context, and compose and buildx where they are installed."""
    look = Look(machine)
    tool_s = min(deadline_s, _TOOL_S)
    # Beside the question to the engine: each takes tens of milliseconds.
    composing = _Beside(lambda: find_compose(machine, tool_s))
    building = _Beside(lambda: find_buildx(machine, tool_s))
    reply = machine.docker(deadline_s)
    look.saw("engine", reply.state, reply.source or "docker", reply.detail)
    compose, buildx = composing.answer(), building.answer()
    source = " ".join(compose.argv) if compose else "docker compose, docker-compose"
    look.saw("compose", "present" if compose else "absent", source)
    fact = parse(reply, compose, buildx, machine.system)
    return look.found(fact)


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


def find_compose(machine: Machine, deadline_s: float) -> Compose | None:
    """The v2 plugin where there is one, else whatever `docker-compose` is (v1, or v2 alone).

    v1 takes half a second to say its version, so it is asked only where there is no plugin.
    """
    for argv in (_COMPOSE_V2, _COMPOSE_V1):
        result = _run(machine, [*argv, "version", "--short"], deadline_s)
        version = parse_version(result.stdout) if result is not None and result.ok else None
        if version:
            return Compose(version, argv)
    return None


def find_buildx(machine: Machine, deadline_s: float) -> str | None:
    """Version of the builder plugin: `github.com/docker/buildx v0.13.1 788433953`."""
    result = _run(machine, ["docker", "buildx", "version"], deadline_s)
    # A CLI without the plugin may well end with 0, and a help text.
    if result is None or not result.ok or "docker/buildx" not in result.stdout:
        return None
    return parse_version(result.stdout)


def _run(machine: Machine, argv: Sequence[str], deadline_s: float) -> CommandResult | None:
    return machine.run(argv, deadline_s=deadline_s) if machine.which(argv[0]) else None


def parse_version(text: str) -> str | None:
    """The first word like 1.29.2 or v2.26.1-4, without its v."""
    match = re.search(r"(?<![\w.])v?(\d{1,4}\.\d{1,4}(?:\.\d{1,6})?[\w.+~-]*)", text, re.ASCII)
    return match[1] if match else None


def parse(
    reply: Reply, compose: Compose | None, buildx: str | None, system: tuple[str, str, str]
) -> Engine:
    """The fact; of garbage, an `error` with the reason."""
    if reply.state != "present":
        detail = reply.detail or "no answer"
        return Engine(reply.state, compose=compose, buildx=buildx, host=reply.source, detail=detail)
    value = reply.value if isinstance(reply.value, dict) else {}
    version, info = _object(value.get("version")), _object(value.get("info"))
    if not version or not info:
        detail = "the engine's answer to `version` or `info` is not an object"
        return Engine("error", compose=compose, buildx=buildx, detail=detail)
    host = _text(value.get("host"))
    options = _texts(info.get("SecurityOptions"))
    memory = _count(info.get("MemTotal"))
    cgroup = _text(info.get("CgroupVersion"))
    return Engine(
        state="present",
        server_version=_text(version.get("Version")) or _text(info.get("ServerVersion")),
        api_version=_text(version.get("ApiVersion")),
        kind=kind_of(version, info, host, system),
        rootless=any(re.match(r"name=rootless\b", option) for option in options),
        cgroup_driver=_text(info.get("CgroupDriver")),
        cgroup_version=int(cgroup) if cgroup in ("1", "2") else None,
        runtimes=tuple(sorted(_object(info.get("Runtimes")))),
        cdi_devices=_cdi(info),
        compose=compose,
        buildx=buildx,
        host=host,
        name=_text(info.get("Name")),
        os_type=_text(info.get("OSType")),
        arch=_text(info.get("Architecture")),
        cpus=_count(info.get("NCPU")) or None,
        memory_mib=memory >> 20 if memory else None,
        security_options=options,
        root_dir=_text(info.get("DockerRootDir")),
        storage_driver=_text(info.get("Driver")),
        engine_id=_text(info.get("ID")),
    )


def kind_of(
    version: Mapping[str, Any],
    info: Mapping[str, Any],
    host: str | None,
    system: tuple[str, str, str],
) -> EngineKind:
    """Podman and Desktop say so; a snap shows in its folder; another kernel is another machine."""
    components = version.get("Components")
    names = [
        str(item.get("Name", "")) if isinstance(item, dict) else ""
        for item in (components if isinstance(components, list) else [])
    ]
    if any("podman" in name.lower() for name in names):
        return "podman"
    if "docker desktop" in str(info.get("OperatingSystem", "")).lower():
        return "desktop"
    if str(info.get("DockerRootDir", "")).startswith(("/var/snap/", "/snap/")):
        return "snap"
    kernel = info.get("KernelVersion")
    if host and host.startswith("ssh://"):
        return "remote"
    # The kernel of a local engine is ours; a forwarded socket's or a VM's is not.
    if isinstance(kernel, str) and kernel and kernel != system[1]:
        return "remote"
    return "engine"


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
