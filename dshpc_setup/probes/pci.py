"""Graphics cards and accelerators on the PCI bus, as sysfs lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dshpc_setup import gpu_vendors
from dshpc_setup.probes.trace import Trace, whole_number

ROOT = "/sys/bus/pci/devices"


@dataclass(frozen=True)
class PciDevice:
    address: str  # 0000:1a:00.0
    vendor: int
    device: int | None
    kind: int  # class and subclass: 0x0300 VGA, 0x0302 3D, 0x0380 display, 0x1200 accelerator
    driver: str | None
    numa_node: int | None
    cores: str | None


def graphics(look: Trace) -> tuple[PciDevice, ...]:
    """Every display controller and accelerator of the known vendors, by address."""
    vendors = {each.pci for each in gpu_vendors.all_of_them()}
    found = []
    for entry in look.names(ROOT):
        address = parse_address(entry)
        if address is None:
            continue
        read = look.machine.read(f"{ROOT}/{entry}/vendor")
        if read.state == "denied":
            look.keep_unseen(f"{ROOT}/{entry}")
        vendor = whole_number(read.text)
        if vendor is None or vendor not in vendors:
            continue
        kind = (look.number(f"{ROOT}/{entry}/class") or 0) >> 8
        if kind >> 8 != 0x03 and kind != 0x1200:
            continue
        found.append(read_device(look, address, f"{ROOT}/{entry}", vendor))
    return tuple(found)


def read_device(look: Trace, address: str, folder: str, vendor: int) -> PciDevice:
    """What the folder of a device says of it."""
    driver = look.machine.readlink(f"{folder}/driver")
    numa = look.number(f"{folder}/numa_node")
    return PciDevice(
        address=address,
        vendor=vendor,
        device=look.number(f"{folder}/device"),
        kind=(look.number(f"{folder}/class") or 0) >> 8,
        driver=driver.rstrip("/").rsplit("/", 1)[-1] if driver else None,
        numa_node=numa if numa is not None and numa >= 0 else None,
        cores=look.text(f"{folder}/local_cpulist") or None,
    )


def parse_address(text: object) -> str | None:
    """Any spelling (00000000:1A:00.0, 1a:00.0) as 0000:1a:00.0; None if it is no address."""
    match = re.fullmatch(
        r"\s*(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?\s*",
        text if isinstance(text, str) else "",
    )
    if match is None:
        return None
    domain, bus, device, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def address_of(domain: int, location: int) -> str:
    """Of KFD's numbers: bus in bits 8-15 of the location, device and function below."""
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    return f"{domain & 0xFFFFFFFF:04x}:{bus:02x}:{device:02x}.{function}"
