"""The kernel's log, as far as it is about GPUs and their drivers, read by a pure parser.

Sources of the texts: NVIDIA's Xid catalogue (NVRM: Xid), Linux kernel/module/signing.c ("Loading of ...
is rejected"), kernel/module/version.c, drivers/gpu/drm/i915 ("GPU HANG"), security/lockdown.
"""

from __future__ import annotations

import re

from dshpc_setup import gpu_vendors
from dshpc_setup.diagnose.kernel_messages import messages
from dshpc_setup.facts import Platform
from dshpc_setup.machine import Machine
from dshpc_setup.machine.recorded import RecordedMachine, Unrecorded
from dshpc_setup.observed.model import KernelLog
from dshpc_setup.probes import kernel_text

DEADLINE_S = 3.0
MOST_LINES = 200

ABOUT = re.compile(
    r"module verification failed|loading of .{0,60}module.{0,60} is rejected"
    r"|unsigned module loading is restricted|PKCS#7 signature"
    + "".join(f"|{each.kernel_log}" for each in gpu_vendors.all_of_them() if each.kernel_log),
    re.IGNORECASE,
)


def read_log(machine: Machine, platform: Platform) -> KernelLog:
    """The log of this machine's own kernel; `absent` in a container, whose kernel is the host's."""
    if platform.in_container or platform.kind not in ("linux", "wsl2"):
        return KernelLog("absent")
    said = kernel_text.read(machine, DEADLINE_S)
    return KernelLog(said.state, parse(said.text) if said.state == "present" else ())


def read_recorded(machine: RecordedMachine, platform: Platform) -> KernelLog:
    """That of a recorded machine: its kernel.log, else what dmesg and the journal answered there.

    Not asked, where it was recorded without any.
    """
    if machine.kernel_log is not None:
        return KernelLog("present", parse(machine.kernel_log))
    if not machine.has_command("dmesg"):
        return KernelLog()
    try:
        return read_log(machine, platform)
    except Unrecorded:  # dmesg was refused, and the journal not asked
        return KernelLog("denied")


def parse(text: str) -> tuple[str, ...]:
    """The messages about GPUs, oldest first, without times; each text once, where it came
    last, the newest 200 of them. Never raises.
    """
    found: dict[str, None] = {}
    for words in messages(text):
        if ABOUT.search(words):
            # A message that comes again is news: what the driver wished in between is over
            found.pop(words, None)
            found[words] = None
    return tuple(found)[-MOST_LINES:]
