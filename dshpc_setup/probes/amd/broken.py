"""Cards that amdgpu itself calls broken: more of their memory is bad than may be (RAS). Pure but for `cards`.

The driver writes it into the kernel's log and nowhere else; sysfs has the counts alone. Such a card goes on
to be listed until the driver is loaded anew, which it then does not start.

Source: amdgpu_ras_eeprom.c, amdgpu_drv.c of the Linux kernel.
"""

from __future__ import annotations

import re

from dshpc_setup.probes import kernel_text, pci
from dshpc_setup.probes.trace import Trace, counted

_DEADLINE_S = 3.0

BAD = (
    r"\bThis GPU is in BAD status|\bRAS records:\d+ exceed threshold"
    r"|\bGPU will not be initialized\. Replace"
)
# "[drm] Initialized amdgpu 3.57.0 20150101 for 0000:83:00.0 on minor 1", newer without date
STARTS = r"\bInitialized amdgpu [\d.]{1,20}(?: \d{1,8})? for (?P<started>\S{1,40}) on minor"
_CARD = re.compile(
    rf"\bamdgpu (?P<address>[0-9a-f:.]{{12}}): .{{0,200}}?(?:{BAD})|{STARTS}",
    re.IGNORECASE | re.ASCII,
)


def cards(look: Trace) -> frozenset[str]:
    """The PCI addresses of those that the kernel's log names; none where it cannot be read: most users
    may not, and doctor says so."""
    said = kernel_text.read(look.machine, look.tool_s(_DEADLINE_S))
    found = told(said.text)
    if found:
        look.saw(
            "amd-log", "present", "the kernel's log", f"calls {counted(len(found), 'GPU')} broken"
        )
    return found


def told(text: str) -> frozenset[str]:
    """Those of a log, each since its last start: a driver that starts a card does not call it broken."""
    found: set[str] = set()
    for line in text.splitlines():
        match = _CARD.search(line)
        if match is None:
            continue
        address = pci.parse_address(match["address"] or match["started"])
        if address is not None:
            (found.add if match["address"] else found.discard)(address)
    return frozenset(found)
