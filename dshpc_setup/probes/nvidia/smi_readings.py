"""What nvidia-smi measures, asked where NVML's library cannot be: in its three forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dshpc_setup.facts.nvidia_driver import WSL_FOLDER
from dshpc_setup.machine import Machine, Reply
from dshpc_setup.probes.nvidia import smi as nvidia_tool
from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi
from dshpc_setup.probes.nvidia import smi_xml as nvidia_xml
from dshpc_setup.probes.nvidia.layers import TOOL
from dshpc_setup.probes.trace import Trace, kept

_FORMS: tuple[tuple[tuple[str, ...], Callable[[str], dict[str, Any] | None]], ...] = (
    (nvidia_xml.ARGUMENTS, nvidia_xml.readings),
    (nvidia_xml.PLAIN_ARGUMENTS, nvidia_xml.readings),
    (nvidia_smi.MEASURED_ARGUMENTS, nvidia_smi.readings),
)


def ask(look: Trace, until: float) -> Reply | None:
    """A value as machine/nvml.py's `ask_readings` has it, `timeout`, or None where it has nothing."""
    program = _program(look.machine)
    if program is None:
        return None
    for arguments, parse in _FORMS:
        left_s = max(0.1, until - look.machine.clock())
        result = look.machine.run([program, *arguments], deadline_s=left_s)
        source = " ".join([program, *arguments])
        if result.state == "timeout":
            look.saw("nvidia-smi", "timeout", source, "no answer before its deadline")
            return Reply("timeout", None, program)
        # One lost card makes it fail, and the others are listed all the same.
        value = parse(result.stdout)
        if value is not None:
            look.saw("nvidia-smi", "present", source)
            return Reply("present", value, program)
        said = kept(result.text) or "it printed nothing"
        look.saw("nvidia-smi", "error", source, said, result.code)
        if nvidia_tool.gives_up(result) or nvidia_tool.crashed(result):
            break
    return None


def _program(machine: Machine) -> str | None:
    """WSL has it outside the PATH of many."""
    lent = f"{WSL_FOLDER}/{TOOL}"
    return machine.which(TOOL) or (lent if machine.exists(lent) else None)
