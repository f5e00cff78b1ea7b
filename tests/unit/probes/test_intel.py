"""Intel's cards: which are cards, what holds them, and how much memory they tell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import Gpus
from dshpc_setup.probes import drm, pci
from dshpc_setup.probes.trace import Trace
from dshpc_setup.vendors.intel import probe as intel
from tests.unit.probes.made_machine import MadeMachine

CARD, INSIDE = "0000:03:00.0", "0000:00:02.0"


def machine(
    address: str = CARD,
    device: int = 0xE20B,
    driver: str | None = "xe",
    *,
    kind: str = "0x030000",
    render: bool = True,
    more: dict[str, str] | None = None,
) -> MadeMachine:
    folder = f"{pci.ROOT}/{address}"
    files: dict[str, str | None] = {
        f"{folder}/vendor": "0x8086",
        f"{folder}/device": f"0x{device:04x}",
        f"{folder}/class": kind,
        f"{folder}/drm/card1/dev": "226:1",
    }
    if render:
        files[f"{folder}/drm/renderD129/dev"] = "226:129"
    for path, text in (more or {}).items():
        files[path if path.startswith("/") else f"{folder}/{path}"] = text
    links = {f"{folder}/driver": f"../../bus/pci/drivers/{driver}"} if driver else {}
    return MadeMachine(files, links=links, devices=["/dev/dri/renderD129"])


def look_at(made: MadeMachine) -> Gpus:
    return intel.probe(made, 5.0).fact


def test_a_card_with_its_files_and_groups() -> None:
    (device,) = look_at(machine()).devices
    assert (device.name, device.driver, device.minor) == ("Intel Arc B580", "xe", 129)
    assert (device.device_files, device.group_ids) == (("/dev/dri/renderD129",), (109,))
    assert device.memory_mib is None


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        ({"tile0/physical_vram_size_bytes": str(12 << 30)}, 12288),
        (
            {
                "tile0/physical_vram_size_bytes": str(64 << 30),
                "tile1/physical_vram_size_bytes": str(64 << 30),
            },
            131072,
        ),
        ({"tile0/memory/physical_vram_size_bytes": str(12 << 30)}, 12288),
        ({"drm/card1/lmem_total_bytes": str(16 << 30)}, 16384),
        ({"tile0/physical_vram_size_bytes": str(1 << 30), "tile1/id": "1"}, None),
        ({"drm/card1/lmem_total_bytes": "-1"}, None),
    ],
)
def test_memory_as_each_driver_tells_it(files: dict[str, str], mib: int | None) -> None:
    (device,) = look_at(machine(more=files)).devices
    assert device.memory_mib == mib


@pytest.mark.parametrize(
    ("made", "state", "word"),
    [
        (machine(driver=None), "error", "has no driver"),
        (machine(render=False), "error", "no render node"),
        (machine(driver="vfio-pci"), "absent", "vfio-pci"),
        (machine(INSIDE, 0x9A49, "i915"), "absent", "inside the Intel processor"),
        (machine("0000:00:0b.0", 0x7D1D, "intel_vpu", kind="0x120000"), "absent", None),
        (machine(more={"/.dockerenv": ""}), "present", None),
    ],
)
def test_what_counts(made: MadeMachine, state: str, word: str | None) -> None:
    fact = look_at(made)
    assert fact.state == state
    assert (word or "") in (fact.detail or "")
    assert bool(fact.unused) == (word is not None)


def test_a_container_that_was_given_no_node() -> None:
    made = machine(more={"/.dockerenv": ""})
    made.devices.clear()
    fact = look_at(made)
    assert (fact.state, fact.unused) == ("absent", ())
    assert "not handed" in (fact.detail or "")


@pytest.mark.parametrize(
    ("address", "device", "inside"),
    [
        (INSIDE, 0x9A49, True),
        (INSIDE, 0x56A0, False),  # a card that a virtual machine was given
        (CARD, 0x56A0, False),
        (CARD, 0xFFFF, False),
    ],
)
def test_integrated(address: str, device: int, inside: bool) -> None:
    card = pci.PciDevice(address, 0x8086, device, 0x0300, "i915", None, None)
    assert intel.is_integrated(card) == inside


PATHS = st.sampled_from(
    [f"{pci.ROOT}/{address}/{name}" for address in (CARD, INSIDE)
     for name in ("vendor", "device", "class", "drm/card0/lmem_total_bytes", "drm/renderD128/dev",
                  "tile0/physical_vram_size_bytes", "numa_node", "local_cpulist")]
    + [f"{drm.ROOT}/card0/device/{name}" for name in ("vendor", "device", "uevent")]
    + ["/.dockerenv", "/dev/dri/renderD128", "/sys/module/xe/version"]
)  # fmt: skip


@given(
    files=st.dictionaries(
        PATHS,
        st.none() | st.sampled_from(["0x8086", "0x56a0", "0x030000", "5"]) | st.text(max_size=20),
        max_size=12,
    ),
    driver=st.sampled_from(["i915", "xe", "vfio-pci", "x", ""]),
)
def test_no_machine_trips_the_probe(files: dict[str, str | None], driver: str) -> None:
    links = {f"{pci.ROOT}/{CARD}/driver": f"../{driver}"}
    fact = look_at(MadeMachine(files, links=links))
    assert bool(fact.devices) == (fact.state == "present")
    assert fact.state in ("present", "absent") or fact.detail


def test_drm_where_the_pci_bus_cannot_be_seen() -> None:
    files: dict[str, str | None] = {
        f"{drm.ROOT}/card0/device/vendor": "0x8086",
        f"{drm.ROOT}/card0/device/device": "0x56a0",
        f"{drm.ROOT}/card0/device/uevent": f"DRIVER=xe\nPCI_SLOT_NAME={CARD}\n",
        f"{drm.ROOT}/renderD128/device/uevent": f"DRIVER=xe\nPCI_SLOT_NAME={CARD}\n",
    }
    made = MadeMachine(files, links={f"{drm.ROOT}/card0/device/driver": "../x/xe"})
    assert [card.address for card in intel.fetch(Trace(made))] == [CARD]
    (device,) = look_at(made).devices
    assert (device.name, device.device_files) == ("Intel Arc A770", ("/dev/dri/renderD128",))
