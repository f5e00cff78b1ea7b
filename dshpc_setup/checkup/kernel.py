"""The kernel's log, as far as it is about GPUs and their drivers: asked by `dmesg`, read by a pure parser.

Sources of the texts: NVIDIA's Xid catalogue (NVRM: Xid), Linux kernel/module/signing.c ("Loading of ...
is rejected"), drivers/gpu/drm/i915 ("GPU HANG"), security/lockdown.
"""

from __future__ import annotations

import re

from dshpc_setup.facts import Platform
from dshpc_setup.machine import Machine
from dshpc_setup.observed import KernelLog

DEADLINE_S = 3.0
MOST_LINES = 200
MOST_LETTERS = 300

# "[    4.501000] ", "<6>[    4.501000][    T1] ": the time since the start, and the caller
_STAMP = re.compile(r"\s*(?:<\d{1,3}>)?\[ *\d{1,10}\.\d{1,9}\](?:\[ *[TC]\d{1,10}\])?")
_ABOUT = re.compile(
    r"NVRM|nvidia|\bXid\b|nouveau|nova_core|amdgpu|\bkfd\b"
    r"|module verification failed|loading of .{0,60}module.{0,60} is rejected"
    r"|unsigned module loading is restricted|PKCS#7 signature"
    r"|\b(?:i915|xe)\b.{0,200}GPU HANG|\bxe\b.{0,200}(?:Engine reset: |Timedout job: )",
    re.IGNORECASE,
)


def read_log(machine: Machine, platform: Platform) -> KernelLog:
    """The log of this machine's own kernel; `absent` in a container, whose kernel is the host's."""
    if platform.in_container or platform.kind not in ("linux", "wsl2"):
        return KernelLog("absent")
    result = machine.run(("dmesg",), deadline_s=DEADLINE_S, env={"LC_ALL": "C"})
    if result.ok:
        return KernelLog("present", parse(result.stdout))
    if result.state != "present":
        return KernelLog(result.state)
    refused = re.search(r"not permitted|permission denied", result.stderr, re.IGNORECASE)
    return KernelLog("denied" if refused else "error")


def parse(text: str) -> tuple[str, ...]:
    """The lines about GPUs, oldest first, without times; each text once, the newest 200 of them.

    A line has up to 300 characters, all of them printable. Never raises.
    """
    found: dict[str, None] = {}
    for line in text.split("\n"):
        # What follows the cut of a line is of no use to anybody, and may be of any length
        words = _plain(_STAMP.sub("", line[: 4 * MOST_LETTERS], count=1))[:MOST_LETTERS].rstrip()
        if _ABOUT.search(words):
            found.setdefault(words)
    return tuple(found)[-MOST_LINES:]


def _plain(line: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in line).strip()
