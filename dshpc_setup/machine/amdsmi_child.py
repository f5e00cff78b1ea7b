"""The process that talks to AMD's library by pyrsmi: see nvml_child.py for why it stands alone."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any


def main() -> None:
    sys.path[:] = sys.argv[1:]
    answers = os.dup(1)
    os.dup2(2, 1)

    def say(item: dict[str, Any]) -> None:
        os.write(answers, (json.dumps(item) + "\n").encode())

    try:
        from pyrsmi import rocml
    except ImportError as error:
        say({"failure": {"state": "error", "text": f"pyrsmi is not installed: {error}"}})
        return
    try:
        rocml.smi_initialize()
        count = int(rocml.smi_get_device_count())
    except Exception as error:  # noqa: BLE001  (pyrsmi raises what it likes; this is a boundary)
        missing = "NotFound" in type(error).__name__
        state = "absent" if missing else "error"
        say({"failure": {"state": state, "text": f"{type(error).__name__}: {error}"}})
        return
    for index in range(count):
        say({"device": _device(rocml, index)})
    say({"end": True})


def _device(rocml: Any, index: int) -> dict[str, Any]:
    found: dict[str, Any] = {"index": index}
    errors: dict[str, str] = {}
    questions: dict[str, Callable[[], Any]] = {
        "name": lambda: rocml.smi_get_device_name(index),
        "pci_bus_id": lambda: _address(int(rocml.smi_get_device_pci_id(index))),
        "memory_bytes": lambda: int(rocml.smi_get_device_memory_total(index)),
    }
    for key, ask in questions.items():
        try:
            value = ask()
        except Exception as error:  # noqa: BLE001  (one field must not hide the others)
            errors[key] = f"{type(error).__name__}: {error}"
            continue
        found[key] = value.decode(errors="replace") if isinstance(value, bytes) else value
    found["errors"] = errors
    return found


def _address(number: int) -> str:
    """BDFID as the library packs it: domain from bit 32, bus 15-8, device 7-3, function 2-0."""
    domain, bus, device = number >> 32 & 0xFFFF, number >> 8 & 0xFF, number >> 3 & 0x1F
    return f"{domain:04x}:{bus:02x}:{device:02x}.{number & 7}"


if __name__ == "__main__":
    main()
