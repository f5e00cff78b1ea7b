"""Containers, images and volumes by name; "there is none" and "the engine says nothing" differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from dshpc_setup.documents import foreign
from dshpc_setup.engine import inspecting
from dshpc_setup.engine.packages import last_lines
from dshpc_setup.engine_client import DOCKER
from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.machine import CommandResult, Machine

if TYPE_CHECKING:
    from dshpc_setup.engine_client import Kind

_ASK_S = 20.0
_REMOVE_S = 90.0

# "Error: No such object" (client 20), "Error response from daemon: No such container" (client 28)
_NONE = re.compile(r"no such (?:container|object|image|volume)", re.IGNORECASE)
_NO_NETWORK = re.compile(r"network \S+ not found")
_ENGINE_SAYS = re.compile(
    r"^(?:Error response from daemon: |Error: No such container|"
    r"Cannot connect to the Docker daemon)",
    re.MULTILINE,
)


_STATES = {
    "exited": "has exited",
    "created": "was created and never started",
    "removing": "is being removed",
}


def how(status: str) -> str:
    """The engine's word for a container's state as the end of a sentence: "has exited"."""
    return _STATES.get(status, f"is {status}")


@dataclass(frozen=True)
class Container:
    """A container as the engine describes it; `created` and `started` are RFC 3339 times.

    Of its environment nothing is kept: there may be secrets in it.
    """

    id: str
    name: str
    image_id: str
    image: str  # the reference it was made from
    running: bool
    status: str  # created | running | paused | restarting | removing | exited | dead
    exit_code: int | None  # of the last run; None while it runs or before
    health: str | None  # starting | healthy | unhealthy; None without a health check
    created: str
    started: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    oom_killed: bool = False  # its last run was ended for want of memory
    restarts: int = 0  # by the engine, of its own accord
    memory_limit_mib: int | None = None
    shm_mib: int | None = None
    devices: tuple[str, ...] = ()  # device nodes handed over by path
    gpus: tuple[str, ...] = ()  # device requests: "nvidia all", "cdi nvidia.com/gpu=all"
    runtime: str | None = None
    privileged: bool = False
    mounts: Mapping[str, str] = field(default_factory=dict)  # destination -> source or volume
    published: tuple[str, ...] = ()  # "0.0.0.0:6817"


def inspect(machine: Machine, name: str) -> Container | None:
    """The container of that name or id, None where there is none; raises where the engine fails."""
    value = _inspect(machine, "container", name)
    return None if value is None else _container(value)


def remove(machine: Machine, name: str) -> bool:
    """Stop and remove a container with its unnamed volumes; False where there was none."""
    found = inspect(machine, name)
    if found is None:
        return False
    if found.running:
        # Kindly, for it may have something to write yet; one that does not end, `rm -f` ends.
        machine.run(DOCKER.stop(name), deadline_s=_REMOVE_S)
    done = machine.run(DOCKER.remove(name), deadline_s=_REMOVE_S)
    if done.ok or _NONE.search(done.stderr):
        return True
    raise engine_error(done, f"The container {name} could not be removed")


def restart(machine: Machine, name: str) -> None:
    """Stop the container, kindly for ten seconds, and start it again; raises where that fails."""
    done = machine.run(DOCKER.restart(name), deadline_s=_REMOVE_S)
    if not done.ok:
        raise engine_error(done, f"The container {name} could not be restarted")


def exec_in(
    machine: Machine,
    container: str,
    argv: Sequence[str],
    *,
    deadline_s: float,
    user: str | None = None,
    stdin: bytes | str | None = None,
    on_line: Callable[[str], None] | None = None,
) -> CommandResult:
    """Run a program in a running container; its own exit code is in the result.

    With `on_line` both streams are handed over line by line, as `Machine.run` does.

    Raises where the program never ran: no such container, not running, an engine that is away.
    A deadline ends the client only: the program in the container may go on.
    """
    full = DOCKER.run_in(container, *argv, stdin=stdin is not None, user=user)
    done = machine.run(full, deadline_s=deadline_s, stdin=stdin, on_line=on_line)
    if on_line is not None and not done.ok and not done.stderr:  # the engine's words are among them
        done = replace(done, stdout="", stderr=done.stdout)
    return ran(done, container)


def ran(done: CommandResult, container: str) -> CommandResult:
    """A call of `docker exec` as it came back; raises where its program never ran."""
    if done.state in ("absent", "denied") or (not done.ok and _ENGINE_SAYS.search(done.stderr)):
        raise engine_error(done, f"Nothing can be run in the container {container}")
    return done


def volume_labels(machine: Machine, name: str) -> dict[str, str] | None:
    """The labels of a volume, None where there is no such volume."""
    value = _inspect(machine, "volume", name)
    return None if value is None else dict(value.get("Labels") or {})


def volume_label(machine: Machine, name: str, label: str) -> str | None:
    """The label of a volume; None where there is no such volume, or no such label on it."""
    return (volume_labels(machine, name) or {}).get(label)


def volumes(machine: Machine, label: str) -> tuple[str, ...]:
    """Names of the volumes with that label (`key` or `key=value`), sorted."""
    return _names(machine, "volumes", label)


def networks(machine: Machine, label: str) -> tuple[str, ...]:
    """Names of the networks with that label, sorted."""
    return _names(machine, "networks", label)


def containers(machine: Machine, label: str) -> tuple[str, ...]:
    """Names of the containers with that label, stopped ones too, sorted."""
    return _names(machine, "containers", label)


def images(machine: Machine, label: str) -> tuple[str, ...]:
    """`name:tag` of the images with that label, sorted."""
    return _names(machine, "images", label)


def _names(machine: Machine, kind: Kind, label: str) -> tuple[str, ...]:
    done = machine.run(DOCKER.labelled(kind, label), deadline_s=_ASK_S)
    if not done.ok:
        raise engine_error(done, f"Docker's {kind} could not be listed")
    return tuple(sorted(done.stdout.split()))


def remove_volume(machine: Machine, name: str) -> bool:
    """False where there was none; raises where it is in use."""
    return _rm(machine, f"The volume {name}", DOCKER.remove_volume(name))


def remove_network(machine: Machine, name: str) -> bool:
    """False where there was none; raises where a container is still on it."""
    return _rm(machine, f"The network {name}", DOCKER.remove_network(name))


def remove_image(machine: Machine, ref: str) -> bool:
    """Take that name from the image, and remove it where it was the last; raises where it is in use."""
    return _rm(machine, f"The image {ref}", DOCKER.remove_image(ref))


def _rm(machine: Machine, what: str, argv: list[str]) -> bool:
    done = machine.run(argv, deadline_s=_REMOVE_S)
    gone = _NONE.search(done.stderr) or _NO_NETWORK.search(done.stderr)
    if not done.ok and not gone:
        raise engine_error(done, f"{what} could not be removed")
    return done.ok


def engine_error(done: CommandResult, brief: str) -> DshpcError:
    """A docker command that failed, told apart: away, denied, slow, or an error of its own."""
    # `docker inspect` prints "[]" on stdout beside what it says on stderr
    text = last_lines(replace(done, stdout="") if done.stderr.strip() else done)
    if done.state == "timeout":
        return DshpcError(
            f"{brief}: Docker did not answer in time",
            text,
            ("See whether it hangs: docker version",),
            Exit.INCOMPLETE,
        )
    if done.state == "absent":
        return DshpcError(f"{brief}: there is no docker command", text, ("dshpc doctor",))
    if re.search(r"permission denied", text, re.IGNORECASE):
        todo = ("dshpc doctor says how to be let in.",)
        return DshpcError(f"{brief}: you may not use Docker", text, todo)
    if "Cannot connect to the Docker daemon" in text or "error during connect" in text:
        todo = ("dshpc doctor says why it does not answer.",)
        return DshpcError(f"{brief}: the Docker engine does not answer", text, todo)
    if "is not running" in text or _NONE.search(text):
        return DshpcError(f"{brief}: it is not running", text, ("Start it: dshpc up",))
    return DshpcError(brief, text, ("dshpc doctor",))


def _inspect(machine: Machine, kind: str, name: str) -> dict[str, Any] | None:
    done = machine.run(inspecting.argv(kind, name), deadline_s=_ASK_S)
    if not done.ok:
        if done.state == "present" and _NONE.search(done.stderr):
            return None
        raise engine_error(done, f"Docker could not be asked for the {kind} {name}")
    try:
        (value,) = foreign.value(done.stdout)
    except ValueError as error:
        brief = f"Docker's answer about the {kind} {name} cannot be read"
        raise DshpcError(brief, f"{error}: {done.stdout[:200]}") from error
    if not isinstance(value, dict):
        raise DshpcError(
            f"Docker's answer about the {kind} {name} cannot be read", str(value)[:200]
        )
    return value


def _container(value: dict[str, Any]) -> Container:
    state = value["State"]
    running = bool(state["Running"])
    started = str(state.get("StartedAt") or "")
    ran = bool(started) and not started.startswith("0001-")  # Go's zero time: never
    health = (state.get("Health") or {}).get("Status")
    host = value.get("HostConfig") or {}
    return Container(
        id=str(value["Id"]),
        name=str(value["Name"]).lstrip("/"),
        image_id=str(value["Image"]),
        image=str(value["Config"]["Image"]),
        running=running,
        status=str(state["Status"]),
        exit_code=None if running or not ran else int(state["ExitCode"]),
        health=None if health in (None, "", "none") else str(health),
        created=str(value["Created"]),
        started=started if ran else None,
        labels=dict(value["Config"].get("Labels") or {}),
        oom_killed=bool(state.get("OOMKilled")),
        restarts=int(value.get("RestartCount") or 0),
        memory_limit_mib=_mib(host.get("Memory")),
        shm_mib=_mib(host.get("ShmSize")),
        devices=tuple(str(item["PathOnHost"]) for item in host.get("Devices") or ()),
        gpus=tuple(_in_words(item) for item in host.get("DeviceRequests") or ()),
        runtime=str(host.get("Runtime") or "") or None,
        privileged=bool(host.get("Privileged")),
        mounts=_mounts(value.get("Mounts") or ()),
        published=_published(value, host),
    )


def _mib(size: Any) -> int | None:
    """Bytes; 0 is no limit."""
    return int(size) >> 20 if size else None


def _in_words(request: dict[str, Any]) -> str:
    """A device request; one without a driver leaves the choice to the engine."""
    ids, count = request.get("DeviceIDs") or (), int(request.get("Count") or 0)
    what = ",".join(map(str, ids)) or ("all" if count < 0 else f"count={count}")
    return f"{request.get('Driver') or 'gpu'} {what}"


def _mounts(mounts: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A volume by its name, a folder of the host by its path."""
    return {
        str(item["Destination"]): str(item.get("Name") or item.get("Source") or item.get("Type"))
        for item in mounts
    }


def _published(value: dict[str, Any], host: dict[str, Any]) -> tuple[str, ...]:
    """As they are bound now; of one that does not run, as they would be."""
    now = (value.get("NetworkSettings") or {}).get("Ports") or host.get("PortBindings") or {}
    bound = (item for items in now.values() for item in items or ())
    return tuple(
        sorted({f"{item.get('HostIp') or '0.0.0.0'}:{item.get('HostPort')}" for item in bound})
    )
