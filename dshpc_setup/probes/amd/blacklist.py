"""Why a kernel module was not loaded: what modprobe's files and the kernel's command line forbid."""

from __future__ import annotations

import re

from dshpc_setup.probes.trace import Trace

_FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
_COMMAND_LINE = "/proc/cmdline"
_LISTS = ("modprobe.blacklist", "module_blacklist", "rd.driver.blacklist")


def fetch(look: Trace, module: str) -> tuple[str, str] | None:
    """The place that keeps the module from being loaded, and what stands there; None: there is none."""
    words = on_command_line(look.text(_COMMAND_LINE) or "", module)
    if words:
        return _COMMAND_LINE, words
    for folder in _FOLDERS:
        for name in look.machine.listdir(folder):
            if not name.endswith(".conf"):
                continue
            line = in_file(look.text(f"{folder}/{name}") or "", module)
            if line:
                return f"{folder}/{name}", line
    return None


def on_command_line(text: str, module: str) -> str | None:
    """The parameter that forbids the module; `nomodeset` keeps amdgpu out as well."""
    for word in text.split():
        key, _, value = word.partition("=")
        if key in _LISTS and module in re.split(r"[,\s]", value):
            return word
        if word == "nomodeset" and module == "amdgpu":
            return word
    return None


def in_file(text: str, module: str) -> str | None:
    """The line of a modprobe.d file that forbids the module: `blacklist M`, `install M /bin/false`."""
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["blacklist", module]:
            return " ".join(words)
        if words[:2] == ["install", module] and words[2:3]:
            program = words[2].rsplit("/", 1)[-1]
            if program in ("false", "true", ":"):
                return " ".join(words)
    return None
