"""What GPUs measure: from NVML's values, from sysfs, from rocm-smi; never a made-up number."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.facts import GpuDevice, Gpus, MigInstance, Vendor
from dshpc_setup.machine import Reply
from dshpc_setup.probes import readings
from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi
from dshpc_setup.probes.readings import PartReading, Reading
from dshpc_setup.vendors.amd.readings import parse_rocm_smi
from dshpc_setup.vendors.nvidia import readings as nvidia
from tests.unit.engine.fake import Answer, FakeMachine

CARD = "/sys/bus/pci/devices/0000:c1:00.0"


@dataclass
class Measured(FakeMachine):
    """A machine whose NVML gives `reply`."""

    reply: Reply = field(default_factory=lambda: Reply("absent", code=12))

    def nvml_readings(self, deadline_s: float) -> Reply:
        return self.reply

    def amdsmi(self, deadline_s: float) -> Reply:
        return Reply("absent", None, "libamd_smi.so")


@dataclass
class Library(FakeMachine):
    """A machine whose libamd_smi.so says this of the cards; none, where it says nothing."""

    cards: tuple[Any, ...] = ()

    def amdsmi(self, deadline_s: float) -> Reply:
        if not self.cards:
            return Reply("absent", None, "libamd_smi.so")
        return Reply("present", {"devices": list(self.cards)}, "libamd_smi.so")


def gpu(index: int = 0, vendor: Vendor = "nvidia", **more: Any) -> GpuDevice:
    return GpuDevice(index, vendor, **more)


def present(*devices: GpuDevice) -> Gpus:
    return Gpus("present", devices)


def nvml(*devices: dict[str, Any], state: Any = "present") -> Measured:
    return Measured(reply=Reply(state, {"devices": list(devices)}, "libnvidia-ml.so.1"))


FULL = {
    "index": 0,
    "uuid": "GPU-1",
    "pci_bus_id": "00000000:1A:00.0",
    "memory_used_bytes": 12 << 20,
    "memory_total_bytes": 81559 << 20,
    "utilization": 97,
    "temperature_c": 65,
    "power_mw": 512_340,
    "power_limit_mw": 700_000,
}


def test_all_of_nvml() -> None:
    found = readings.gather(nvml(FULL), present(gpu(uuid="GPU-1")), 1.0)
    assert found.devices == (Reading(12, 81559, 97, 65, 512.3, 700.0),)
    assert (found.states, found.hung, found.refused) == ((("nvidia", "present"),), False, False)


def test_a_refused_value_is_not_zero() -> None:
    item = {"uuid": "GPU-1", "temperature_c": 0, "errors": {"power_mw": 3}}
    found = readings.gather(nvml(item), present(gpu(uuid="GPU-1")), 1.0)
    assert found.devices == (Reading(temperature_c=0),)


def test_a_value_that_none_can_have_is_none() -> None:
    item = {**FULL, "utilization": 4294967295, "power_mw": -1, "temperature_c": True, "mig": [3]}
    found = readings.gather(nvml(item), present(gpu(uuid="GPU-1")), 1.0)
    assert found.devices == (Reading(12, 81559, None, None, None, 700.0),)


def test_each_value_to_its_card() -> None:
    """By UUID, else by address, else by number; the order of the two lists may differ."""
    items = ({"index": 0, "uuid": "GPU-b", "utilization": 2},
             {"index": 1, "uuid": "GPU-a", "utilization": 1},
             {"index": 2, "pci_bus_id": "00000000:1B:00.0", "utilization": 3},
             {"index": 3, "utilization": 4})  # fmt: skip
    cards = (
        gpu(0, uuid="GPU-a", pci_bus_id="0000:1a:00.0"),
        gpu(1, uuid="GPU-b"),
        gpu(2, pci_bus_id="0000:1b:00.0"),
        gpu(3),
        gpu(4, uuid="GPU-c"),
    )
    found = readings.gather(nvml(*items), present(*cards), 1.0)
    assert [each.utilization_percent for each in found.devices] == [1, 2, 3, 4, None]


def test_mig_instances_by_uuid() -> None:
    item = {**FULL, "mig": [{"uuid": "MIG-1", "memory_used_bytes": 5 << 20}]}
    card = gpu(uuid="GPU-1", mig_mode="enabled", mig=(MigInstance("1g.10gb", "MIG-1"),))
    (reading,) = readings.gather(nvml(item), present(card), 1.0).devices
    assert reading.part("MIG-1") == PartReading("MIG-1", 5, None)
    assert reading.part("MIG-2") == PartReading("MIG-2")
    assert reading.part(None) == PartReading(None)


def test_mig_instances_in_their_order_where_the_tool_names_none() -> None:
    item = {**FULL, "mig": [{"memory_used_bytes": 5 << 20}, {"memory_used_bytes": 6 << 20}]}
    parts = (MigInstance("1g.10gb", "MIG-1"), MigInstance("1g.10gb"))
    card = gpu(uuid="GPU-1", mig_mode="enabled", mig=parts)
    (reading,) = readings.gather(nvml(item), present(card), 1.0).devices
    assert reading.part("MIG-1", 0) == PartReading("MIG-1", 5, None)
    bare = replace(card, mig=(MigInstance("1g.10gb"), MigInstance("1g.10gb")))
    (reading,) = readings.gather(nvml(item), present(bare), 1.0).devices
    assert [reading.part(None, place).memory_used_mib for place in range(3)] == [5, 6, None]
    fewer = replace(card, mig=parts[:1])
    (reading,) = readings.gather(nvml(item), present(fewer), 1.0).devices
    assert reading.part("MIG-1", 0) == PartReading("MIG-1"), "which of the two is not known"


def test_nvidia_smi_that_knows_neither_xml_nor_the_log() -> None:
    row = "0, GPU-1, 00000000:1A:00.0, 100, 15360, 7, 41, 26.77, [N/A]\n"
    query = f"/usr/bin/nvidia-smi {' '.join(nvidia_smi.MEASURED_ARGUMENTS)}"
    machine = Measured(
        programs={"nvidia-smi"},
        commands={query: Answer(row), "/usr/bin/nvidia-smi": Answer("unknown option", code=2)},
    )
    found = readings.gather(machine, present(gpu(uuid="GPU-1")), 1.0)
    assert found.devices == (Reading(100, 15360, 7, 41, 26.8, None),)
    assert [item.state for item in found.evidence] == ["absent", "error", "error", "present"]


def test_what_was_said_before_it_hung_is_kept() -> None:
    found = readings.gather(nvml(FULL, state="timeout"), present(gpu(uuid="GPU-1"), gpu(1)), 1.0)
    assert found.hung
    assert found.devices == (Reading(12, 81559, 97, 65, 512.3, 700.0), Reading())


def test_nvidia_smi_where_there_is_no_library() -> None:
    text = """<?xml version="1.0" ?><nvidia_smi_log><driver_version>550.163.01</driver_version>
    <attached_gpus>1</attached_gpus><gpu id="00000000:1A:00.0"><product_name>Tesla T4</product_name>
    <uuid>GPU-1</uuid><fb_memory_usage><total>15360 MiB</total><used>100 MiB</used></fb_memory_usage>
    <utilization><gpu_util>7 %</gpu_util></utilization></gpu></nvidia_smi_log>"""
    machine = Measured(
        programs={"nvidia-smi"}, commands={"/usr/bin/nvidia-smi -q -x": Answer(text)}
    )
    found = readings.gather(machine, present(gpu(uuid="GPU-1")), 1.0)
    assert found.devices[0].memory_used_mib == 100
    assert found.devices[0].utilization_percent == 7
    assert [item.state for item in found.evidence] == ["absent", "present"]


def test_nvidia_smi_that_says_nothing() -> None:
    machine = Measured(
        programs={"nvidia-smi"},
        commands={"/usr/bin/nvidia-smi": Answer("Unable to determine", code=9)},
    )
    found = readings.gather(machine, present(gpu()), 1.0)
    assert found.devices == (Reading(),)
    assert [(item.probe, item.state, item.code) for item in found.evidence] == [
        ("nvml-readings", "absent", 12),
        *[("nvidia-smi", "error", 9)] * 3,
    ]


def test_a_gpu_that_is_gone_since_it_was_listed_is_told() -> None:
    here = present(gpu(0, uuid="GPU-1"), gpu(1, uuid="GPU-2"), gpu(2, "amd"))
    whole = readings.gather(nvml(FULL, {**FULL, "uuid": "GPU-2"}), here, 1.0)
    assert (whole.lost, whole.refused) == ((), False)
    for reply in (
        nvml(FULL),
        nvml(FULL, {"index": 1, "uuid": "GPU-2", "error": 15, "text": "GPU is lost"}),
    ):
        found = readings.gather(reply, here, 1.0)
        assert (found.lost, found.refused) == ((1,), True)
    assert readings.gather(Measured(), here, 1.0).lost == (0, 1), "the library itself is gone"
    jetson = present(gpu(0, driver="nvgpu"))
    assert readings.gather(Measured(), jetson, 1.0).lost == (), "it never had one"


def test_nvml_that_refuses_is_not_asked_by_another_way() -> None:
    machine = Measured(reply=Reply("denied", code=4), programs={"nvidia-smi"})
    found = readings.gather(machine, present(gpu()), 1.0)
    assert found.refused
    assert machine.ran == []


def test_made_up_gpus_measure_nothing() -> None:
    gpus = Gpus("present", (gpu(),), simulated=True)
    found = readings.gather(FakeMachine(), gpus, 1.0)
    assert (found.devices, found.refused) == ((Reading(),), False)
    assert found.evidence[0].state == "unsupported"


AMD = {
    f"{CARD}/mem_info_vram_used": f"{300 << 20}\n",
    f"{CARD}/mem_info_vram_total": f"{196592 << 20}\n",
    f"{CARD}/gpu_busy_percent": "42\n",
    f"{CARD}/hwmon/hwmon3/temp2_input": "41600\n",
    f"{CARD}/hwmon/hwmon3/power1_input": "133000000\n",
    f"{CARD}/hwmon/hwmon3/power1_cap": "750000000\n",
}
MI300X = gpu(0, "amd", pci_bus_id="0000:c1:00.0")


def test_amd_by_sysfs() -> None:
    found = readings.gather(FakeMachine(files=AMD), present(MI300X), 1.0)
    assert found.devices == (Reading(300, 196592, 42, 42, 133.0, 750.0),)
    edge = {**AMD, f"{CARD}/hwmon/hwmon3/temp1_input": "35000",
            f"{CARD}/hwmon/hwmon3/power1_average": "90000000"}  # fmt: skip
    found = readings.gather(FakeMachine(files=edge), present(MI300X), 1.0)
    assert (found.devices[0].temperature_c, found.devices[0].power_w) == (35, 90.0)


def test_of_a_partition_only_what_is_true_of_it() -> None:
    parts = [gpu(i, "amd", pci_bus_id="0000:c1:00.0", partition_of="0000:c1:00.0") for i in (0, 1)]
    found = readings.gather(FakeMachine(files=AMD), present(*parts), 1.0)
    assert found.devices == (Reading(temperature_c=42),) * 2


ROCM = {
    "card0": {
        "PCI Bus": "0000:C1:00.0",
        "GPU use (%)": "3",
        "Temperature (Sensor edge) (C)": "N/A",
        "Temperature (Sensor junction) (C)": "47.5",
        "Average Graphics Package Power (W)": "36.0",
        "Max Graphics Package Power (W)": "290.0",
        "VRAM Total Memory (B)": str(32752 << 20),
        "VRAM Total Used Memory (B)": str(6 << 20),
    },
    "system": {"Driver version": "6.7.0"},
}


def test_rocm_smi_where_sysfs_has_nothing() -> None:
    text = f"WARNING: AMD GPU device(s) is/are in a low-power state\n{json.dumps(ROCM)}"
    machine = Library(programs={"rocm-smi"}, commands={"/usr/bin/rocm-smi": Answer(text)})
    found = readings.gather(machine, present(MI300X), 1.0)
    assert found.devices == (Reading(6, 32752, 3, 48, 36.0, 290.0),)
    assert [item.state for item in found.evidence] == ["absent", "present"]


SAID = {
    "index": 0,
    "pci_bus_id": MI300X.pci_bus_id,
    "memory_bytes": 32752 << 20,
    "memory_used_bytes": 7 << 20,
    "utilization_percent": -1,
    "power_w": 35.0,
}


def test_the_library_where_sysfs_has_nothing() -> None:
    """What it cannot read is -1, and it reads no temperature: that is rocm-smi's, where there is one."""
    found = readings.gather(Library(cards=(SAID,)), present(MI300X), 1.0)
    assert found.devices == (Reading(7, 32752, None, None, 35.0),)
    assert [(item.source, item.state) for item in found.evidence][1:] == [
        ("libamd_smi.so", "present")
    ]
    tool: dict[str, Any] = {"/usr/bin/rocm-smi": Answer(json.dumps(ROCM))}
    both = Library(cards=(SAID,), programs={"rocm-smi"}, commands=tool)
    assert readings.gather(both, present(MI300X), 1.0).devices == (
        Reading(7, 32752, 3, 48, 35.0, 290.0),
    )
    tool["/usr/bin/rocm-smi"] = Answer(code=None, state="timeout")
    assert readings.gather(both, present(MI300X), 1.0).devices == found.devices
    other = Library(cards=({**SAID, "pci_bus_id": "0000:01:00.0"}, "no card", None))
    assert readings.gather(other, present(MI300X), 1.0).devices == (Reading(),)


def test_rocm_smi_that_hangs_or_is_not_there() -> None:
    machine = Library(
        programs={"rocm-smi"}, commands={"/usr/bin/rocm-smi": Answer(code=None, state="timeout")}
    )
    assert readings.gather(machine, present(MI300X), 1.0).hung
    found = readings.gather(Library(), present(MI300X), 1.0)
    assert (found.devices, found.refused) == ((Reading(),), False)


def test_intel_by_hwmon() -> None:
    class Counting(FakeMachine):
        def read(self, path: str) -> Any:
            if path.endswith("energy1_input"):
                self.files[path] = str(int(self.files[path]) + 4_000)  # 1 ms later by its clock
            return super().read(path)

    files = {
        f"{CARD}/hwmon/hwmon2/energy1_input": "1000000",
        f"{CARD}/hwmon/hwmon2/temp2_input": "51000",
        f"{CARD}/hwmon/hwmon2/power1_max": "0",
    }
    card = gpu(0, "intel", pci_bus_id="0000:c1:00.0")
    (reading,) = readings.gather(Counting(files=files), present(card), 1.0).devices
    assert (reading.temperature_c, reading.power_limit_w) == (51, None)
    assert reading.power_w == 4.0
    (still,) = readings.gather(FakeMachine(files=files), present(card), 1.0).devices
    assert still.power_w is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
DEVICES = (gpu(0, uuid="GPU-1"), gpu(1, pci_bus_id="0000:1a:00.0"), gpu(2))


@given(anything, st.dictionaries(st.sampled_from([*FULL, "mig"]), anything))
def test_no_value_raises(value: Any, item: dict[str, Any]) -> None:
    assert isinstance(nvidia.of_devices(DEVICES, value), dict)
    for reading in nvidia.of_devices(DEVICES, {"devices": [value, item]}).values():
        assert reading.utilization_percent is None or 0 <= reading.utilization_percent <= 100


@given(st.dictionaries(st.sampled_from(list(SAID)), anything))
def test_nothing_that_the_library_says_raises(card: dict[str, Any]) -> None:
    readings.gather(
        Library(cards=(card | {"pci_bus_id": MI300X.pci_bus_id},)), present(MI300X), 1.0
    )


@given(st.text(), st.dictionaries(st.sampled_from([*ROCM["card0"], "PCI Bus"]), anything))
def test_no_text_of_rocm_smi_raises(text: str, card: dict[str, Any]) -> None:
    parse_rocm_smi(text)
    found = parse_rocm_smi(json.dumps({"card0": card | {"PCI Bus": "1:2.0"}}))
    assert found is None or list(found) == ["0000:01:02.0"]
