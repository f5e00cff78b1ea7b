"""The kernel's log, as far as it is about GPUs and their drivers: asked by `dmesg`, read by a pure parser.

Where that is for root alone (kernel.dmesg_restrict), systemd's journal has the same for the groups adm
and systemd-journal.

Sources of the texts: NVIDIA's Xid catalogue (NVRM: Xid), Linux kernel/module/signing.c ("Loading of ...
is rejected"), drivers/gpu/drm/i915 ("GPU HANG"), security/lockdown.
"""

from __future__ import annotations

import re

from dshpc_setup.facts import Platform
from dshpc_setup.machine import Machine
from dshpc_setup.observed import KernelLog

DEADLINE_S = 3.0
JOURNAL = (
    *("journalctl", "--dmesg", "--boot", "--output=cat", "--no-pager"),
    "--lines=20000",  # the newest: a machine may have been up for months
)
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
    refused = re.search(r"not permitted|permission denied", result.stderr, re.IGNORECASE)
    if result.state == "denied" or (result.state == "present" and refused):
        return _journal(machine) or KernelLog("denied")
    return KernelLog("error" if result.state == "present" else result.state)


def _journal(machine: Machine) -> KernelLog | None:
    """The same out of the journal; None where it holds nothing that this user may read.

    Who may not read it is told so on standard error, and gets no line: no kernel starts without any.
    """
    if machine.which(JOURNAL[0]) is None:
        return None
    result = machine.run(JOURNAL, deadline_s=DEADLINE_S, env={"LC_ALL": "C"})
    lines = [line for line in result.stdout.splitlines() if not line.startswith("-- ")]
    hidden = re.search(r"not seeing messages|insufficient permissions", result.stderr)
    if not result.ok or hidden or not lines:
        return None
    return KernelLog("present", parse("\n".join(lines)))


def parse(text: str) -> tuple[str, ...]:
    """The lines about GPUs, oldest first, without times; each text once, where it came
    last, the newest 200 of them.

    A line has up to 300 characters, all of them printable. Never raises.
    """
    found: dict[str, None] = {}
    for line in text.split("\n"):
        # What follows the cut of a line is of no use to anybody, and may be of any length
        words = _plain(_STAMP.sub("", line[: 4 * MOST_LETTERS], count=1))[:MOST_LETTERS].rstrip()
        if _ABOUT.search(words):
            # A line that comes again is news: what the driver wished in between is over
            found.pop(words, None)
            found[words] = None
    return tuple(found)[-MOST_LINES:]


def _plain(line: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in line).strip()
