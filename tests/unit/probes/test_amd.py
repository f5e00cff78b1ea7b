"""AMD's layers together: which is believed, what fills the gaps, and what is said of the rest."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import GpuDevice, Gpus
from dshpc_setup.machine import Reply
from dshpc_setup.probes import drm, pci
from dshpc_setup.probes.amd import attributes as amd_attributes
from dshpc_setup.probes.amd import blacklist, kfd, rocm_smi
from dshpc_setup.probes.amd import devices as amd_devices
from dshpc_setup.probes.amd import names as amd_names
from dshpc_setup.probes.amd import probe as amd
from dshpc_setup.probes.amd import unused as amd_unused
from dshpc_setup.probes.amd.card import ToolCard
from dshpc_setup.probes.trace import Trace
from tests.unit.probes.made_machine import MadeMachine, printed
from tests.unit.probes.test_kfd import PROPERTIES

A, B = "0000:05:00.0", "0000:26:00.0"
CARD = json.dumps(
    {
        "card0": {
            "PCI Bus": "0000:63:00.0",
            "VRAM Total Memory (B)": str(64 << 30),
            "Card series": "AMD Instinct MI210",
            "GFX Version": "gfx90a",
            "Unique ID": "0x1f",
        },
        "system": {"Driver version": "6.7.0"},
    }
)


def bus(address: str, device: int = 0x74A1, **attributes: object) -> dict[str, str | None]:
    folder = f"{pci.ROOT}/{address}"
    told = {"vendor": "0x1002", "device": f"0x{device:04x}", "class": "0x120000", **attributes}
    return {f"{folder}/{name}": str(value) for name, value in told.items()}


def node(
    number: int, location: int, minor: int, *, gib: int = 192, target: int = 90402, **more: int
) -> dict[str, str | None]:
    told = {"simd_count": 1216, "device_id": 0x74A1, "location_id": location, **more}
    lines = {**told, "drm_render_minor": minor, "gfx_target_version": target}
    files: dict[str, str | None] = {
        f"{kfd.NODES}/{number}/properties": "".join(
            f"{key} {item}\n" for key, item in lines.items()
        )
    }
    if gib:
        bank = f"heap_type 1\nsize_in_bytes {gib << 30}\n"
        files[f"{kfd.NODES}/{number}/mem_banks/0/properties"] = bank
    return files


def look_at(machine: MadeMachine) -> Gpus:
    return amd.probe(machine, 5.0).fact


def only(fact: Gpus) -> GpuDevice:
    (device,) = fact.devices
    return device


PATHS = st.sampled_from(
    [f"{kfd.NODES}/{number}/{file}" for number in (1, 2, 10)
     for file in ("properties", "mem_banks/0/properties", "io_links/0/properties")]
    + [f"{pci.ROOT}/{A}/{file}"
       for file in ("vendor", "device", "class", "mem_info_vram_total", "product_name", "revision",
                    "current_compute_partition", "unique_id", "numa_node", "drm/renderD128/dev",
                    "ip_discovery/die/0/GC/0/major", "ip_discovery/die/0/11/0/minor")]
    + [f"{drm.ROOT}/card0/device/{file}" for file in ("vendor", "device", "uevent")]
    + ["/.dockerenv", "/dev/kfd", "/dev/null", "/proc/cmdline", "/etc/modprobe.d/a.conf",
       "/sys/module/amdgpu/version"]
)  # fmt: skip
TEXTS = (
    PROPERTIES
    | st.sampled_from(["0x1002", "0x74a1", "0x120000", "CPX", "1", "blacklist amdgpu", "nomodeset"])
    | st.text(max_size=20)
)


@given(
    files=st.dictionaries(PATHS, st.none() | TEXTS, max_size=14),
    said=st.none() | st.text(max_size=40) | st.just(CARD),
    library=st.none() | st.recursive(st.none() | st.text(max_size=5), lambda i: st.lists(i) |
                                     st.dictionaries(st.sampled_from(["devices", "name"]), i)),
)  # fmt: skip
def test_no_machine_trips_the_probe(
    files: dict[str, str | None], said: str | None, library: object
) -> None:
    machine = MadeMachine(
        files,
        commands={} if said is None else {"rocm-smi": printed(said)},
        library=Reply("present", library, "lib"),
    )
    found = amd.probe(machine, 5.0)
    fact = found.fact
    json.dumps([vars(item) for item in (*fact.devices, *fact.unused)], default=vars)
    assert bool(fact.devices) == (fact.state == "present")
    assert [device.index for device in fact.devices] == list(range(len(fact.devices)))
    assert fact.state in ("present", "absent") or fact.detail
    assert found.conclusions[0].about == "gpus amd"
    for device in fact.devices:
        assert device.memory_mib is None or device.memory_mib > 0
        assert device.slurm_type


def test_nothing_is_asked_where_kfd_tells_all() -> None:
    machine = MadeMachine(
        {**bus(A), **node(1, 0x500, 128, unique_id=7)}, commands={"rocm-smi": printed(CARD)}
    )
    found = amd.probe(machine, 5.0)
    assert only(found.fact).name == "AMD Instinct MI300X"
    assert machine.asked == []
    instead = {item.source: item.says for item in found.conclusions[0].instead}
    assert instead["amd-smi, rocm-smi"].startswith("not asked")


def test_a_tool_alone_is_a_sign() -> None:
    machine = MadeMachine(commands={"rocm-smi": printed("WARNING: x\n" + CARD)})
    fact = look_at(machine)
    device = only(fact)
    assert (device.name, device.memory_mib, device.compute) == (
        "AMD Instinct MI210",
        65536,
        "gfx90a",
    )
    assert (device.uuid, device.pci_bus_id) == ("GPU-000000000000001f", "0000:63:00.0")
    assert (device.device_files, device.minor, fact.driver_version) == ((), None, "6.7.0")


def test_a_tools_card_has_its_render_node_where_that_is() -> None:
    machine = MadeMachine(
        {f"{pci.ROOT}/0000:63:00.0/drm/renderD130/dev": "226:130"},
        devices=["/dev/dri/renderD130"],
        commands={"rocm-smi": printed(CARD)},
    )
    device = only(look_at(machine))
    assert (device.device_files, device.minor) == (("/dev/dri/renderD130",), 130)
    assert device.group_ids == (109,)


@pytest.mark.parametrize(
    ("result", "state"),
    [
        (printed("rubbish"), "error"),
        (printed(CARD[:80]), "error"),
        (printed("", code=1, stderr="Traceback"), "error"),
        (printed("WARNING: No JSON data to report"), "absent"),
        (
            printed("", code=1, stderr="Driver not initialized (amdgpu not found in modules)"),
            "absent",
        ),
        (replace(printed(""), state="timeout", code=None), "timeout"),
        (replace(printed(""), state="denied", code=None), "denied"),
    ],
)
def test_how_a_tool_fails(result: object, state: str) -> None:
    fact = look_at(MadeMachine(commands={"rocm-smi": result}))  # type: ignore[dict-item]
    assert fact.state == state
    assert fact.state == "absent" or "rocm-smi" in (fact.detail or "")


def test_the_second_tool_fills_what_the_first_one_lacks() -> None:
    bare = json.dumps([{"gpu": 0, "bdf": "0000:63:00.0", "uuid": "x-1"}])
    machine = MadeMachine(commands={"amd-smi": printed(bare), "rocm-smi": printed(CARD)})
    device = only(look_at(machine))
    assert (device.name, device.memory_mib) == ("AMD Instinct MI210", 65536)
    assert [words[0] for words in machine.asked] == ["/usr/bin/amd-smi", "/usr/bin/rocm-smi"]


def test_a_card_of_the_machine_is_not_the_containers() -> None:
    files = {**bus("0000:63:00.0", 0x740F), "/.dockerenv": ""}
    fact = look_at(MadeMachine(files, commands={"rocm-smi": printed(CARD)}))
    assert (fact.state, fact.devices) == ("absent", ())
    assert "none was handed" in (fact.detail or "")


def test_memory_of_drm_where_kfd_has_no_banks() -> None:
    files = {**bus(A, mem_info_vram_total=16 << 30), **node(1, 0x500, 128, gib=0)}
    assert only(look_at(MadeMachine(files))).memory_mib == 16384


def test_a_board_says_which_of_several_it_is() -> None:
    files = {**bus(A, 0x740C, product_name="AMD INSTINCT MI250 (MCM) OAM AC MBA"),
             **node(1, 0x500, 128, device_id=0x740C, target=90010)}  # fmt: skip
    device = only(look_at(MadeMachine(files)))
    assert (device.name, device.slurm_type) == ("AMD Instinct MI250", "mi250")


def test_partitions_that_share_a_location_are_of_one_card() -> None:
    files = {**node(1, 0x500, 128, unique_id=5), **node(2, 0x500, 129, unique_id=5)}
    devices = look_at(MadeMachine(files)).devices
    assert [device.partition_of for device in devices] == [A, A]
    assert [device.uuid for device in devices] == [None, None]


def test_partitions_whose_number_stands_for_a_function_are_of_one_card() -> None:
    files = {**node(1, 0x500, 128, unique_id=5), **node(2, 0x501, 129, unique_id=5),
             **node(3, 0x2600, 136, unique_id=6)}  # fmt: skip
    files.update(bus(A, current_compute_partition="DPX"))
    devices = look_at(MadeMachine({**files, **bus(B)})).devices
    assert [device.pci_bus_id for device in devices] == [A, A, B]
    assert [device.partition_of for device in devices] == [A, A, None]
    assert [device.partition_mode for device in devices] == ["DPX", "DPX", None]
    assert [device.name for device in devices] == ["AMD Instinct MI300X"] * 3


def test_a_function_that_is_on_the_bus_is_a_card() -> None:
    """A virtual machine may show a card at any function."""
    files = {**bus("0000:00:05.3"), **node(1, 0x2B, 128, unique_id=5)}
    device = only(look_at(MadeMachine(files)))
    assert (device.pci_bus_id, device.partition_of) == ("0000:00:05.3", None)
    files = {**node(1, 0x2B, 128, target=110000), **node(2, 0x28, 129, target=110000)}
    devices = look_at(MadeMachine(files)).devices
    assert [device.partition_of for device in devices] == [None, None], "not of that make"


def test_partitions_of_a_tools_list() -> None:
    cards = {
        f"card{number}": {
            "PCI Bus": f"0000:05:00.{number}",
            "Unique ID": "0x5",
            "Card Series": "AMD Instinct MI300X",
            "VRAM Total Memory (B)": str(24 << 30),
        }
        for number in range(2)
    }
    devices = look_at(MadeMachine(commands={"rocm-smi": printed(json.dumps(cards))})).devices
    assert [device.partition_of for device in devices] == [A, A]
    assert [device.uuid for device in devices] == [None, None]


def test_old_cards_that_share_a_location_are_no_partitions() -> None:
    files = {
        **node(1, 0x500, 128, unique_id=5, device_id=0x6860, target=0),
        **node(2, 0x500, 129, unique_id=6, device_id=0x6860, target=0),
    }
    devices = look_at(MadeMachine(files)).devices
    assert [device.partition_of for device in devices] == [None, None]
    assert [device.compute for device in devices] == [None, None]


def test_a_card_with_fewer_simds_than_its_like_is_short() -> None:
    files: dict[str, str | None] = {}
    for card, count in enumerate((4, 3)):
        for part in range(count):
            number = 1 + card * 4 + part
            location = part << 28 | (0x500 + card * 0x2100)
            files.update(node(number, location, 127 + number, gib=48, simd_count=304))
    found = look_at(MadeMachine(files)).disagreements
    (short,) = (item for item in found if item.finding == "DSH-AM-042")
    assert short.about == B
    assert "3 of 4" in short.layers[0].says


def test_no_memory_is_wasted_on_a_mad_number_of_simds() -> None:
    files = {
        **node(1, 0x500, 128, simd_count=1 << 62),
        **node(2, 1 << 28 | 0x2600, 129, simd_count=1),
    }
    assert len(look_at(MadeMachine(files)).devices) == 2


def test_the_kernel_lists_gpus_and_dev_has_no_kfd() -> None:
    fact = look_at(MadeMachine({**node(1, 0x500, 128), "/dev/dri/renderD128": ""}))
    assert "/dev/kfd" in [item.about for item in fact.disagreements]
    assert [gpu.problems for gpu in fact.devices] == [("DSH-GP-009",)]


def test_where_the_pci_bus_cannot_be_seen_drm_shows_the_card() -> None:
    files: dict[str, str | None] = {
        f"{drm.ROOT}/card0/device/vendor": "0x1002",
        f"{drm.ROOT}/card0/device/device": "0x74a1",
        f"{drm.ROOT}/renderD128/device/vendor": "0x1002",
    }
    links = {
        f"{drm.ROOT}/{name}": f"../../devices/pci0000:00/0000:00:01.1/{A}/drm/{name}"
        for name in ("card0", "renderD128")
    }
    fact = look_at(MadeMachine(files, links=links))
    assert (fact.state, [item.pci_bus_id for item in fact.unused]) == ("error", [A])
    fact = look_at(MadeMachine({**files, **node(1, 0x500, 128)}, links=links))
    assert fact.state == "present"


def test_the_class_of_drm() -> None:
    xcp = {
        f"{drm.ROOT}/renderD129": "../../devices/platform/amdgpu_xcp_1/drm/renderD129",
        f"{drm.ROOT}/renderD130": "../../devices/platform/amdgpu_xcp.2/drm/renderD130",
    }
    links = {f"{drm.ROOT}/renderD128": f"../../devices/pci0000:00/{A}/drm/renderD128", **xcp}
    files = {f"{drm.ROOT}/card1-DP-1/status": "", f"{drm.ROOT}/version": "drm"}
    found = drm.fetch(Trace(MadeMachine(files, links=links)))
    assert found.partitions == {129, 130}
    assert [(key, card.minor) for key, card in found.cards.items()] == [(A, 128)]


@given(text=st.text(max_size=80))
def test_no_text_trips_the_small_parsers(text: str) -> None:
    drm.address_in(text)
    drm.slot_in(text)
    drm.minor_of(text)
    blacklist.on_command_line(text, "amdgpu")
    blacklist.in_file(text, "amdgpu")
    amd_names.in_table(text, 0x73DF, 0xC1)
    assert amd_names.slurm_type(text, None)
    number = amd_attributes.parse_unique_id(text)
    assert number is None or 0 < number < 1 << 64


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((11, 0, 0), "gfx1100"),
        ((9, 4, 2), "gfx90a"),
        ((9, 4, 3), "gfx942"),
        ((11, 0, 3), "gfx1101"),
        ((12, 0, 1), "gfx1201"),
        ((None, 0, 0), None),
        ((7, 0, 0), None),
        ((), None),
    ],
)
def test_targets_of_the_chips_own_table(
    parts: tuple[int | None, ...], expected: str | None
) -> None:
    assert amd_attributes.target_of_parts(parts) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Arcturus GL-XL [Instinct MI100]", "mi100"),
        ("Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]", "rx_7900_xt"),
        ("AMD Instinct MI60 / MI50", "mi60"),
        ("AMD Radeon RX 6700 Series", "rx_6700"),
        (None, "gfx942"),
    ],
)
def test_types(name: str | None, expected: str) -> None:
    assert amd_names.slurm_type(name, "gfx942") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("blacklist amdgpu", "blacklist amdgpu"),
        ("  install amdgpu /bin/false\n", "install amdgpu /bin/false"),
        ("# blacklist amdgpu", None),
        ("blacklist amdgpu_other", None),
        ("install amdgpu /usr/local/bin/mine", None),
        ("install amdgpu", None),
    ],
)
def test_modprobes_files(text: str, expected: str | None) -> None:
    assert blacklist.in_file(text, "amdgpu") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ro modprobe.blacklist=nouveau,amdgpu quiet", "modprobe.blacklist=nouveau,amdgpu"),
        ("module_blacklist=amdgpu", "module_blacklist=amdgpu"),
        ("ro nomodeset", "nomodeset"),
        ("ro amdgpu.dc=0", None),
    ],
)
def test_the_kernels_command_line(text: str, expected: str | None) -> None:
    assert blacklist.on_command_line(text, "amdgpu") == expected


@pytest.mark.parametrize(
    ("device", "driver", "wrong", "word"),
    [
        (0x74A1, None, True, "not loaded"),
        (0x74A1, "amdgpu", True, "KFD"),
        (0x74A1, "vfio-pci", False, "virtual machines"),
        (0x1586, "amdgpu", True, "KFD"),
        (0x164E, "amdgpu", False, "inside the processor"),
        (0x6779, None, False, "too old"),
        (0x9874, "amdgpu", False, "too old"),
        (0x67DF, "radeon", False, "too old"),
    ],
)
def test_why_a_card_is_not_used(device: int, driver: str | None, wrong: bool, word: str) -> None:
    card = pci.PciDevice(A, 0x1002, device, 0x0300, driver, None, None)
    left = amd_unused.judge(Trace(MadeMachine()), [card], kfd=True)
    assert bool(left.wrong) == wrong
    assert word in left.reasons[0][1].text


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("AMD INSTINCT MI250 (MCM) OAM AC MBA", 0x7408, "mi250x"),
        ("AMD INSTINCT MI250 (MCM) OAM AC MBA", 0x740C, "mi250"),
        ("AMD Instinct MI250X / MI250", 0x740C, "mi250x"),
        (None, 0x7408, "mi250x"),
        ("Arcturus GL-XL [Instinct MI100]", 0x738C, "mi100"),
        (None, 0x9999, "gfx90a"),
        (None, None, "gfx90a"),
    ],
)
def test_a_type_is_what_the_chip_is_in_whatever_words_the_tool_calls_it(
    name: str | None, number: int | None, expected: str
) -> None:
    card = ToolCard(0, name, device_id=number, target="gfx90a", address=A)
    (device,) = amd_devices.of_tools([card], Trace(MadeMachine({})))
    assert device.slurm_type == expected


@pytest.mark.parametrize("said", ["Device 740c", "AMD Device 0x740c", "Graphics Device", "0x740c"])
def test_what_only_names_an_id_is_no_name(said: str) -> None:
    (card,) = (
        rocm_smi.parse(json.dumps({"card0": {"Card Series": said, "Device ID": "0x740c"}})) or ()
    )
    assert card.name is None
    (device,) = amd_devices.of_tools([card], Trace(MadeMachine({})))
    assert device.slurm_type == "mi250x"
