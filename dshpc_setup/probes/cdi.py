"""CDI specifications: files that say what a container is given with a device of this name.

Format: SPEC.md of cncf-tags/container-device-interface, versions 0.3 to 1.1, and pkg/cdi/spec.go there for
what engines refuse. A file is YAML or JSON, and may be large: NVIDIA's names every library of the driver.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dshpc_setup.documents import foreign
from dshpc_setup.facts import CdiDevice, CdiSpec, Engine
from dshpc_setup.machine import Machine
from dshpc_setup.probes.engine_files import SNAP_DATA
from dshpc_setup.probes.trace import Found, Trace, counted, kept

FOLDERS = ("/etc/cdi", "/var/run/cdi")
"""Where engines look that were told nothing else."""

_MOST_CHARACTERS = 1 << 20
_MOST_EDITS = 20_000  # aliases can make more of them than the file has lines
_FORMAT = re.compile(r"v?[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")
_KIND = re.compile(r"[A-Za-z](?:[\w.-]*[A-Za-z0-9])?/[A-Za-z](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?", re.ASCII)
_DRIVER = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)\Z", re.ASCII)
# Where the snap of Docker, which wrote the file, sees the machine's own files.
_HOST_IN_SNAP = "/var/lib/snapd/hostfs"


class SpecError(ValueError):
    """What makes a file no CDI specification, and where."""


@dataclass(frozen=True)
class Parsed:
    """A specification, and the files that its mounts take from the host."""

    spec: CdiSpec
    files: tuple[str, ...] = ()


@dataclass
class _Edits:
    """containerEdits: what is done to a container."""

    nodes: dict[str, None] = field(default_factory=dict)
    files: dict[str, None] = field(default_factory=dict)
    groups: dict[int, None] = field(default_factory=dict)


def probe(machine: Machine, deadline_s: float) -> Found[tuple[CdiSpec, ...]]:
    """The specifications in the usual folders."""
    del deadline_s  # a few files
    look = Trace(machine)
    found = tuple(spec for folder in FOLDERS for spec in _in(look, _seen(machine, folder)))
    if not found:
        look.saw("cdi", "absent", ", ".join(FOLDERS), "no specification")
    return look.found(found)


def probe_more(machine: Machine, folders: Iterable[str]) -> Found[tuple[CdiSpec, ...]]:
    """The specifications in folders that the engine was told of."""
    look = Trace(machine)
    return look.found(tuple(spec for folder in folders for spec in _in(look, folder)))


def folders(engine: Engine) -> tuple[str, ...]:
    """Where this engine looks; of one that does not tell it, or runs elsewhere, the usual ones."""
    if engine.state != "present" or engine.kind not in ("engine", "snap"):
        return FOLDERS
    told = tuple(dict.fromkeys(map(_usual, engine.cdi_folders))) or FOLDERS
    return (*told, f"{SNAP_DATA}/etc/cdi") if engine.kind == "snap" else told


def _usual(folder: str) -> str:
    path = posixpath.normpath(folder)
    return f"/var{path}" if path == "/run/cdi" else path


def of_folders(specs: Iterable[CdiSpec], wanted: tuple[str, ...]) -> tuple[CdiSpec, ...]:
    """Those that lie in these folders, or are one of them that may not be listed; in their order."""
    return tuple(
        sorted(
            (spec for spec in specs if _folder(spec, wanted) in wanted),
            key=lambda spec: (wanted.index(_folder(spec, wanted)), spec.path),
        )
    )


def in_force(
    specs: tuple[CdiSpec, ...], wanted: tuple[str, ...]
) -> tuple[tuple[CdiSpec, ...], Mapping[str, str]]:
    """Specifications with the devices that an engine takes from them; path -> what replaces it whole.

    Of a name in two folders the later folder's counts, of one twice in a folder neither
    (pkg/cdi/cache.go of cncf-tags/container-device-interface). `specs` are in the folders' order.
    """
    kept: list[CdiSpec] = []
    replaced: dict[str, str] = {}
    clashes: dict[str, str] = {}
    later: dict[str, CdiSpec] = {}  # by the names of its devices
    for spec in reversed(specs):
        over = [later[item.name] for item in spec.devices if item.name in later]
        same = [each for each in over if _folder(each, wanted) == _folder(spec, wanted)]
        gone = {item.name for each in over if each not in same for item in each.devices}
        own = tuple(item for item in spec.devices if item.name not in gone)
        if spec.devices and not own:
            replaced[spec.path] = over[0].path
            continue
        later.update((item.name, spec) for item in own)
        for each in same:
            clashes |= {spec.path: each.path, each.path: spec.path}
        kept.insert(0, replace(spec, devices=own))
    return tuple(
        replace(spec, detail=f"{clashes[spec.path]} names the same devices")
        if spec.path in clashes
        else spec
        for spec in kept
    ), replaced


def _folder(spec: CdiSpec, wanted: tuple[str, ...]) -> str:
    path = _usual(spec.path)
    return path if path in wanted else _usual(posixpath.dirname(spec.path))


def _seen(machine: Machine, folder: str) -> str:
    """The folder, or the other name of it where /var/run is no link to /run."""
    other = folder.removeprefix("/var")
    return other if not machine.exists(folder) and machine.exists(other) else folder


def _in(look: Trace, folder: str) -> Iterator[CdiSpec]:
    names = look.names(folder)
    if folder in look.unseen:
        look.saw("cdi", "denied", folder, "the folder may not be listed")
        yield CdiSpec(folder, "denied", detail="the folder may not be listed")
    for name in names:
        # Engines read no other names, and no folders below.
        if name.endswith((".yaml", ".json")):
            yield from _read(look, posixpath.join(folder, name))


def _read(look: Trace, path: str) -> Iterator[CdiSpec]:
    read = look.machine.read(path)
    if read.state == "absent":  # gone since it was listed, or a link to nothing
        return
    if read.text is None:
        spec = CdiSpec(path, read.state, detail=read.detail or "it cannot be read")
    else:
        parsed = parse(path, read.text)
        spec = replace(parsed.spec, missing=tuple(_missing(look.machine, parsed)))
    look.saw("cdi", spec.state, path, spec.detail or in_words(spec))
    yield spec


def _missing(machine: Machine, parsed: Parsed) -> Iterator[str]:
    """Nodes and files that are not here; of what lies in a folder that is closed nothing is said."""
    spec = parsed.spec
    nodes = (*spec.nodes, *(node for device in spec.devices for node in device.nodes))
    closed: dict[str, bool] = {}
    for path in dict.fromkeys((*nodes, *parsed.files)):
        if machine.exists(path):
            continue
        folder = posixpath.dirname(path)
        if folder not in closed:
            closed[folder] = machine.read(folder).state == "denied"
        if not closed[folder]:
            yield path


def in_words(spec: CdiSpec) -> str:
    """ "nvidia.com/gpu, 3 devices"; of one that cannot be read its state."""
    if spec.state != "present":
        return f"cannot be read ({spec.state})"
    return f"{spec.kind}, {counted(len(spec.devices), 'device')}"


# -- text ------------------------------------------------------------------------------------------


def parse(path: str, text: str) -> Parsed:
    """What the file says; of one that is no specification an `error` with the place."""
    try:
        if len(text) > _MOST_CHARACTERS:
            raise SpecError(f"it is larger than {_MOST_CHARACTERS >> 20} MiB")
        return _understood(path, _loaded(text))
    except SpecError as error:
        return Parsed(CdiSpec(path, "error", detail=kept(str(error))))


def _loaded(text: str) -> Any:
    """Mappings, lists and texts: what stands where a text is wanted is read as one by engines too."""
    if text.lstrip().startswith("{"):
        try:
            return foreign.value(text, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            pass  # it may be YAML all the same
    from dshpc_setup.documents import yaml_nodes  # it takes time that most machines have no use for

    try:
        return yaml_nodes.load(text)
    except yaml_nodes.YamlError as error:
        raise SpecError(str(error)) from None


# -- values ----------------------------------------------------------------------------------------


def _understood(path: str, value: Any) -> Parsed:
    if not isinstance(value, dict):
        raise SpecError("it holds no 'key: value' lines" if value else "it is empty")
    version = value.get("cdiVersion")
    if not isinstance(version, str):
        raise SpecError("'cdiVersion' is missing")
    if not _FORMAT.fullmatch(version):
        raise SpecError(f"'cdiVersion' is {version[:80]!r}")
    kind = value.get("kind")
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise SpecError("'kind' is missing" if kind is None else f"'kind' is {str(kind)[:80]!r}")
    common = _Edits()
    left = _edits(common, value.get("containerEdits"), "containerEdits", _MOST_EDITS)
    devices: dict[str, CdiDevice] = {}
    files = dict(common.files)
    for number, item in enumerate(_list(value.get("devices"), "devices")):
        where = f"devices[{number}]"
        name = item.get("name") if isinstance(item, dict) else None
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise SpecError(f"{where} has no name" if name is None else f"{where}: its name is odd")
        own = _Edits()
        edits = item.get("containerEdits")
        left = _edits(own, edits, f"{where}.containerEdits", left) - 1
        if not any((edits or {}).values()):
            raise SpecError(f"{where} ({name[:80]}) gives a container nothing")
        files.update(own.files)
        if name in devices:
            raise SpecError(f"{where}: a second device is called {name[:80]!r}")
        groups = tuple({**common.groups, **own.groups})
        devices[name] = CdiDevice(f"{kind}={name}", tuple(own.nodes), groups)
    if not devices:
        # What is left where no GPU was found, or no MIG instance, when it was generated.
        raise SpecError("it names no device")
    driver = next((match[1] for file in files if (match := _DRIVER.search(file))), None)
    spec = CdiSpec(
        path,
        "present",
        kind,
        tuple(devices.values()),
        tuple(common.nodes),
        driver_version=driver,
        version=version,
    )
    return Parsed(spec, tuple(files))


def _edits(found: _Edits, value: Any, where: str, most: int) -> int:
    """Fill it; how many more edits the file may have. Raises SpecError."""
    if value is not None and not isinstance(value, dict):
        raise SpecError(f"{where} is no mapping")
    edits = value or {}
    nodes = _list(edits.get("deviceNodes"), f"{where}.deviceNodes")
    mounts = _list(edits.get("mounts"), f"{where}.mounts")
    groups = _list(edits.get("additionalGids"), f"{where}.additionalGids")
    most -= len(nodes) + len(mounts) + len(groups)
    if most < 0:
        raise SpecError(f"it has more than {_MOST_EDITS} entries")
    for number, node in enumerate(nodes):
        path = _path(node, "hostPath") or _path(node, "path")
        if path is None:
            raise SpecError(f"{where}.deviceNodes[{number}] has no path")
        found.nodes[path] = None
    for mount in mounts:
        # One of another kind (tmpfs) takes nothing from the host.
        if path := _path(mount, "hostPath"):
            found.files[path] = None
    for group in groups:
        if not re.fullmatch(r"[0-9]{1,10}", str(group)):
            raise SpecError(f"{where}.additionalGids holds what is no number")
        found.groups[int(group)] = None
    return most


def _list(value: Any, where: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise SpecError(f"{where} is no list")
    return value or []


def _path(value: Any, key: str) -> str | None:
    path = value.get(key) if isinstance(value, dict) else None
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    return posixpath.normpath(path.removeprefix(_HOST_IN_SNAP))
