"""How a compose file hands over GPUs, in words that can be compared whatever keys say it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MOST_BYTES = 1 << 20  # of a YAML file

_OURS = "slurm"  # the service of docker-compose.yml.j2
_DEFAULT_RUNTIME = "runc"


def parsed(data: bytes) -> Any:
    """YAML as mappings, lists and texts; None where it is none, or too large."""
    from dshpc_setup.probes import plain_yaml

    try:
        return plain_yaml.load(data.decode()) if len(data) <= MOST_BYTES else None
    except ValueError:
        return None


def words(document: Any) -> tuple[str, ...]:
    """ "nvidia all by device request", "cdi nvidia.com/gpu=all", "/dev/kfd", "group 44"; sorted.

    `document` is a parsed compose file, numbers as texts. Of several services it is ours that counts,
    else the first.
    """
    services = _mapping(_mapping(document).get("services"))
    service = _mapping(services.get(_OURS) or next(iter(services.values()), None))
    found = [*_requests(service), *_runtime(service), *_devices(service)]
    if found:  # the groups are those of the nodes
        found += [f"group {item}" for item in _texts(service.get("group_add"))]
    return tuple(sorted(set(found)))


def _requests(service: dict[str, Any]) -> Iterator[str]:
    """The keys `gpus` and `deploy.resources.reservations.devices` say the same to the engine."""
    gpus = service.get("gpus")
    if gpus == "all":
        yield from _request("", ("all",))
    deploy = _mapping(service.get("deploy"))
    reserved = _mapping(_mapping(deploy.get("resources")).get("reservations")).get("devices")
    for item in (*_list(gpus), *_list(reserved)):
        request = _mapping(item)
        ids = _texts(request.get("device_ids")) or _texts([request.get("count", "all")])
        driver = request.get("driver")
        yield from _request(driver if isinstance(driver, str) else "", ids)


def _request(driver: str, ids: tuple[str, ...]) -> Iterator[str]:
    if driver == "cdi":
        yield from (f"cdi {name}" for name in ids)
    else:
        which = ",".join("all" if name == "-1" else name for name in ids)
        yield f"{driver or 'nvidia'} {which} by device request"


def _runtime(service: dict[str, Any]) -> Iterator[str]:
    name = service.get("runtime")
    if isinstance(name, str) and name != _DEFAULT_RUNTIME:
        which = _environment(service).get(f"{name.upper()}_VISIBLE_DEVICES", "")
        yield f"runtime {name} {which}".rstrip()


def _environment(service: dict[str, Any]) -> dict[str, str]:
    found = service.get("environment")
    if isinstance(found, list):
        return dict(item.split("=", 1) for item in _texts(found) if "=" in item)
    return {key: value for key, value in _mapping(found).items() if isinstance(value, str)}


def _devices(service: dict[str, Any]) -> Iterator[str]:
    for item in _list(service.get("devices")):
        text = item if isinstance(item, str) else _mapping(item).get("source")
        if not isinstance(text, str) or not text:
            continue
        if not text.startswith("/"):
            yield f"cdi {text}"
            continue
        host, _, inside = text.partition(":")
        yield f"simulated {inside.split(':')[0]}" if host == "/dev/null" and inside else host


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(item for item in _list(value) if isinstance(item, str))
