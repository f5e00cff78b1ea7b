"""Plugins of the docker command as the files of a machine tell of them, where none answers in time.

Where the CLI looks: cli-plugins/manager of docker/cli, its own folder first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.documents import foreign
from dshpc_setup.machine import CommandResult, Machine

Plugin = Literal["compose", "buildx"]

INFO = ("docker", "info", "--format", "{{json .ClientInfo}}")
_SYSTEM = (
    "/usr/local/lib/docker/cli-plugins",
    "/usr/local/libexec/docker/cli-plugins",
    "/usr/lib/docker/cli-plugins",
    "/usr/libexec/docker/cli-plugins",
)
_DPKG = "/var/lib/dpkg"
_APK = "/lib/apk/db/installed"
_PACKAGES: dict[Plugin, tuple[str, ...]] = {
    "compose": ("docker-compose-plugin", "docker-compose-v2", "docker-compose"),
    "buildx": ("docker-buildx-plugin", "docker-buildx"),
}
_OF_APK: dict[Plugin, str] = {"compose": "docker-cli-compose", "buildx": "docker-cli-buildx"}


@dataclass(frozen=True)
class OnDisk:
    """`path`: the plugin that the CLI would take; `version` where `source`, a database, has it."""

    path: str
    version: str | None = None
    source: str = ""


def on_disk(machine: Machine, plugin: Plugin) -> OnDisk | None:
    """The plugin's file, None where it is in none of the CLI's folders."""
    home = machine.env.get("HOME", "")
    own = machine.env.get("DOCKER_CONFIG") or (f"{home}/.docker" if home else "")
    folders = (*([f"{own}/cli-plugins"] if own else []), *_SYSTEM)
    paths = (f"{folder}/docker-{plugin}" for folder in folders)
    path = next(filter(machine.exists, paths), None)
    if path is None:
        return None
    for name in _PACKAGES[plugin]:
        listed = machine.read(f"{_DPKG}/info/{name}.list").text or ""
        if path in listed.splitlines():
            version = parse_dpkg(machine.read(f"{_DPKG}/status").text or "", name)
            return OnDisk(path, version, f"{_DPKG}/status")
    if path.startswith(("/usr/lib/", "/usr/libexec/")):
        version = parse_apk(machine.read(_APK).text or "", _OF_APK[plugin])
        return OnDisk(path, version, _APK)
    return OnDisk(path)


def parse_dpkg(text: str, name: str) -> str | None:
    """The version of an installed package in dpkg's status file, without its epoch."""
    for stanza in re.split(r"\n\n+", text):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", stanza, re.MULTILINE))
        if fields.get("Package") == name and fields.get("Status", "").endswith(" installed"):
            return fields.get("Version", "").rpartition(":")[2] or None
    return None


def parse_apk(text: str, name: str) -> str | None:
    """The version of a package in apk's database."""
    for stanza in re.split(r"\n\n+", text):
        fields = dict(re.findall(r"^([PV]):(.*)$", stanza, re.MULTILINE))
        if fields.get("P") == name:
            return fields.get("V") or None
    return None


def told_by_client(done: CommandResult, plugin: Plugin) -> str | None:
    """The plugin's version in `docker info`, which asks each plugin for its name and version.

    The client tells of its plugins also where no engine answers, and then ends with an error.
    """
    try:
        value = foreign.value(done.stdout.partition("\n")[0])
        plugins = value.get("Plugins") or ()
        versions = {item.get("Name"): item.get("Version") for item in plugins}
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    version = versions.get(plugin)
    return version if isinstance(version, str) and version else None
