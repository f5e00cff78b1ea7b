"""Programs and libraries of Linux, by how they begin: elf(5)."""

from __future__ import annotations

import struct

HEAD_BYTES = 20
"""How much of a file tells."""
MAGIC = b"\x7fELF"

# e_machine by what the kernel calls the processor
_MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64"}
_MACHINES[243] = "riscv64"


def architecture_of(head: bytes) -> str | None:
    """What it is for, as `uname -m` has it, by its first 20 bytes; None for what is no ELF file."""
    if len(head) < HEAD_BYTES or head[:4] != MAGIC:
        return None
    order = ">" if head[5] == 2 else "<"
    number = struct.unpack_from(f"{order}H", head, 18)[0]
    return _MACHINES.get(number, f"machine {number}")
