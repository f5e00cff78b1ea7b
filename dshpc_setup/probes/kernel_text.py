"""The kernel's log as text: by `dmesg`, and where that is for root alone, out of systemd's journal.

Where that is for root alone (kernel.dmesg_restrict), the journal has the same for the groups adm and
systemd-journal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup.facts import State
from dshpc_setup.machine import Machine
from dshpc_setup.machine.log import KERNEL_LOG

DMESG, JOURNAL = KERNEL_LOG


@dataclass(frozen=True)
class KernelText:
    state: State
    text: str = ""


def read(machine: Machine, deadline_s: float) -> KernelText:
    """`denied` where neither may be read."""
    result = machine.run(DMESG, deadline_s=deadline_s, env={"LC_ALL": "C"})
    if result.ok:
        return KernelText("present", result.stdout)
    refused = re.search(r"not permitted|permission denied", result.stderr, re.IGNORECASE)
    if result.state == "denied" or (result.state == "present" and refused):
        return _journal(machine, deadline_s) or KernelText("denied")
    return KernelText("error" if result.state == "present" else result.state)


def _journal(machine: Machine, deadline_s: float) -> KernelText | None:
    """The same out of the journal; None where it holds nothing that this user may read.

    Who may not read it is told so on standard error, and gets no line: no kernel starts without any.
    """
    if machine.which(JOURNAL[0]) is None:
        return None
    result = machine.run(JOURNAL, deadline_s=deadline_s, env={"LC_ALL": "C"})
    lines = [line for line in result.stdout.splitlines() if not line.startswith("-- ")]
    hidden = re.search(r"not seeing messages|insufficient permissions", result.stderr)
    if result.state == "timeout":
        return KernelText("timeout")
    if not result.ok or hidden or not lines:
        return None
    return KernelText("present", "\n".join(lines))
