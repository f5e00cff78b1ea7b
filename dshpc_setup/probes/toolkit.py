"""The vendors' container toolkits: programs that hand GPUs to containers, and their settings.

Looked for where an engine finds them, which is not where the user's PATH leads.
Sources: packaging/ and internal/config of NVIDIA/nvidia-container-toolkit, build/ and cmd/ of
ROCm/container-toolkit, nvidia/lib of canonical/docker-snap.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dshpc_setup import gpu_vendors
from dshpc_setup.facts import Toolkit, Vendor
from dshpc_setup.machine import Machine
from dshpc_setup.probes import engine_files
from dshpc_setup.probes.compose import parse_version
from dshpc_setup.probes.trace import Found, Trace, kept

_TOOL_S = 3.0
_OPERATOR = "/usr/local/nvidia/toolkit"  # where Kubernetes' GPU operator puts it
_SNAP = "/snap/docker/current/usr/bin"
# A service's PATH as systemd sets it, then where other systems and installers put it.
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/run/current-system/sw/bin",
            _OPERATOR, _SNAP)  # fmt: skip
_WHERE = "/usr/local/bin, /usr/bin and the like"
_CONFIG = "nvidia-container-runtime/config.toml"
# All that there are: a toolkit that may hand over all of them withholds nothing.
_CAPABILITIES = {"compat32", "compute", "display", "graphics", "ngx", "utility", "video"}
_MODES = ("auto", "legacy", "cdi", "csv", "jit-cdi")


@dataclass(frozen=True)
class Settings:
    """Of NVIDIA's config.toml; None where it does not say, () where everything may be handed over."""

    no_cgroups: bool | None = None
    mode: str | None = None
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class Installed:
    """The toolkits, and what the machine's own files say of the engines on it."""

    toolkits: tuple[Toolkit, ...] = ()
    daemons: Mapping[engine_files.Which, engine_files.Daemon] = field(default_factory=dict)
    changed: Mapping[str, float] = field(default_factory=dict)  # when, seconds since the epoch
    container: engine_files.Container | None = None  # that we are in


def probe(machine: Machine, deadline_s: float) -> Found[Installed]:
    """A toolkit for each vendor whose driver or toolkit is here, and the engines' settings."""
    look = Trace(machine, deadline_s)
    toolkits = []
    files: list[str] = []
    for vendor in gpu_vendors.all_of_them():
        if vendor.toolkit is None:
            continue
        found, config = _toolkit(look, vendor.name, vendor.toolkit, look.tool_s(_TOOL_S))
        if found.state == "present" or _is_used(machine, vendor.toolkit):
            look.saw(
                f"{vendor.name}-toolkit", found.state, _where(found), found.detail or found.version
            )
            toolkits.append(found)
        files += [path for path in (found.hook, found.runtime, config) if path]
    if not toolkits:
        look.saw("toolkit", "absent", _WHERE, "no vendor's container toolkit")
    daemons = engine_files.fetch(look)
    files += [each.settings for each in daemons.values()]
    changed = {path: when for path in files if (when := machine.changed(path)) is not None}
    around = engine_files.container(look)
    return look.found(Installed(tuple(toolkits), daemons, changed, around))


def _is_used(machine: Machine, toolkit: gpu_vendors.Toolkit) -> bool:
    """Whether the vendor's driver is here; made-up GPUs need no toolkit."""
    return machine.simulated is None and any(map(machine.exists, toolkit.driver_signs))


def _where(found: Toolkit) -> str:
    paths = (found.hook, found.runtime, found.ctk, found.cdi_hook)
    return ", ".join(filter(None, paths)) or _WHERE


def _toolkit(
    look: Trace, vendor: Vendor, known: gpu_vendors.Toolkit, deadline_s: float
) -> tuple[Toolkit, str | None]:
    """The vendor's toolkit, and the settings file that counts for it where there is one."""
    paths = {role: _program(look.machine, name) for role, name in known.programs.items()}
    if not any(paths.values()):
        return Toolkit(vendor, "absent"), None
    found = Toolkit(
        vendor,
        "present",
        hook=paths.get("hook"),
        runtime=paths.get("runtime"),
        ctk=paths.get("ctk"),
        cdi_hook=paths.get("cdi_hook"),
    )
    if found.ctk is not None:
        found = replace(found, version=_version(look, (found.ctk, known.version), deadline_s))
    if not known.has_config:
        return found, None
    config = _config(found.hook or found.runtime or found.ctk or "")
    read = look.machine.read(config)
    if read.state == "absent":
        return found, None
    if read.text is None:
        look.saw(f"{vendor}-toolkit", read.state, config, read.detail)
        why = f"{config} cannot be read ({read.state})"
        return replace(found, detail=why), config
    told = parse_config(read.text)
    return replace(
        found, no_cgroups=told.no_cgroups, mode=told.mode, capabilities=told.capabilities
    ), config


def _program(machine: Machine, name: str) -> str | None:
    places = (f"{folder}/{name}" for folder in _FOLDERS)
    return next(filter(machine.exists, places), None)


def _config(program: str) -> str:
    """The settings file of a toolkit, by where its programs are."""
    if program.startswith(f"{_OPERATOR}/"):
        return f"{_OPERATOR}/.config/{_CONFIG}"
    if program.startswith(f"{_SNAP}/"):
        return f"{engine_files.SNAP_DATA}/etc/{_CONFIG}"
    return f"/etc/{_CONFIG}"


def _version(look: Trace, argv: tuple[str, str], deadline_s: float) -> str | None:
    """As the program says it: no package database knows of all the ways to install it."""
    result = look.machine.run(argv, deadline_s=deadline_s)
    version = parse_version(result.stdout) if result.ok else None
    if version is None:
        state = result.state if result.state != "present" else "error"
        look.saw("toolkit", state, " ".join(argv), kept(result.text) or "no version", result.code)
    return version


# -- config.toml -----------------------------------------------------------------------------------

_HEADER = re.compile(r"\[\s*([\w.\"' -]{1,200}?)\s*\]")
_PAIR = re.compile(r"([\w\"'. -]{1,200}?)\s*=\s*(.*)")
_TEXT = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'")


def parse_config(text: str) -> Settings:
    """The three keys of config.toml that decide what a container gets; the last of each counts.

    A line that is commented out says nothing. Python 3.10 reads no TOML by itself.
    """
    found: dict[str, str] = {}
    section = ""
    inside_list = False
    for line in map(str.strip, text.splitlines()):
        if inside_list:
            inside_list = not line.partition("#")[0].rstrip().endswith("]")
        elif (header := _HEADER.match(line)) and _is_rest(line[header.end() :]):
            section = f"{_bare(header[1])}."
        elif pair := _PAIR.fullmatch(line):
            found[section + _bare(pair[1])] = pair[2]
            inside_list = pair[2].startswith("[") and "]" not in pair[2]
    mode = _string(found.get("nvidia-container-runtime.mode", ""))
    names = _string(found.get("supported-driver-capabilities", "")) or ""
    words = map(str.strip, names.split(","))
    capabilities = {word for word in words if re.fullmatch(r"[\w-]{1,40}", word, re.ASCII)}
    return Settings(
        _boolean(found.get("nvidia-container-cli.no-cgroups", "")),
        mode if mode in _MODES else None,
        ()
        if "all" in capabilities or capabilities >= _CAPABILITIES
        else tuple(sorted(capabilities)),
    )


def _bare(key: str) -> str:
    """A dotted key without quotes and blanks: `"a" . b` is a.b."""
    return re.sub(r"[\"' ]", "", key)


def _is_rest(text: str) -> bool:
    """Whether nothing but a comment stands behind a value."""
    return re.fullmatch(r"\s*(?:#.*)?", text) is not None


def _string(value: str) -> str | None:
    match = _TEXT.match(value)
    if match is None or not _is_rest(value[match.end() :]):
        return None
    return match[1] if match[1] is not None else match[2]


def _boolean(value: str) -> bool | None:
    match = re.match(r"(true|false)\b", value)
    return match[1] == "true" if match and _is_rest(value[match.end() :]) else None
